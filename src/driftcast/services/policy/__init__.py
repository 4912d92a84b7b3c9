"""Management policies: what they say, which contradict each other, and the applications that bring them to nodes."""
