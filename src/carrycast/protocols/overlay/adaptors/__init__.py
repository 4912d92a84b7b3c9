"""Adaptations [002 §3.5]: each an adaptor that reacts to system events, in a file of its own."""
