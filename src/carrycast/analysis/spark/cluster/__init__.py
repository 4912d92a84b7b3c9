"""Runs on machines that share nothing with this one: what is sent to them, who they are, and how results come home."""
