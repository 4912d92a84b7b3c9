"""Advice: which protocol, with which settings, serves a fleet best, by what its user wants."""
