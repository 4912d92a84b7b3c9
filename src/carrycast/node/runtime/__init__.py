"""What runs a stack on a real machine: its loop, store, clock, numbers, and users' functions in processes."""
