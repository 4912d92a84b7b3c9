"""How long tests wait for something that must happen: until it does, on however busy a machine."""

PATIENCE_S = 600.0
"""A bound for what hangs, not for what is slow: nothing takes so long but what never ends. Tests assert no times."""
