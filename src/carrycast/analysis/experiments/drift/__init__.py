"""Drift against the others, with one setting in every network."""
