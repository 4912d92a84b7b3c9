"""Folds compute metrics and views from facts. There is one module for each family of metrics."""
