"""What outlives a start of a node: an SQLite store, its group commit, sequence numbers, backlogs, retention."""
