"""Who hears whom, when, and at what cost. Knows nothing of protocols."""
