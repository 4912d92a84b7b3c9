"""Experiments that come with driftcast: one folder each, with its definition, scenarios and claims."""
