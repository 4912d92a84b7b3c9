"""Observers of a run: the recorder receives every fact once and passes it to checkers, folds and fingerprint."""
