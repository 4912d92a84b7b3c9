"""A live network on the player's page: what nodes tell through their control channels, served on this machine alone."""
