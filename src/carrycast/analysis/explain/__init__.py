"""Why an event came, or did not: what a trace and its contacts tell of one event and one node."""
