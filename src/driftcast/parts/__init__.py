"""Mechanisms that protocols compose."""
