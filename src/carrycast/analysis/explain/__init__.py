"""Why an event was delivered to a node, or was not: folds over the facts of a trace, and its contacts."""
