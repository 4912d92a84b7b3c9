"""Policies among brokers that move."""
