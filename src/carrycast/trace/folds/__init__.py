"""Folds: everything that is computed from facts. One file for each family of metrics."""
