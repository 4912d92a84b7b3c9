"""Movement of nodes: one file per model, and players for trace files. Knows nothing of radios."""
