"""The language of scenarios: what a user writes, checked and drawn from the seed. Runs nothing."""
