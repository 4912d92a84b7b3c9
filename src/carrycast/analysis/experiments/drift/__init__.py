"""Drift compared with the other protocols, with the same settings in every network."""
