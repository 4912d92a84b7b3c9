"""Why adaptive routing comes out as it does."""
