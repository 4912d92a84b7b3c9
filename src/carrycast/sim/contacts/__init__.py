"""Who meets whom, when: exactly, from movement, or as given by a plan."""
