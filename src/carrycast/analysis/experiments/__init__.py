"""Experiments that come with carrycast: one folder each, with its definition, scenarios and claims."""
