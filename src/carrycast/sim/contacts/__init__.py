"""Contacts between nodes: computed exactly from movement, or read from a contact plan."""
