"""Paper 004 again: how its claims depend on what the paper leaves open, one reading at a time."""
