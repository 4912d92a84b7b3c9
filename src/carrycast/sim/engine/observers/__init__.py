"""Those who watch a run: the recorder, to whom everything is told once, and who it tells."""
