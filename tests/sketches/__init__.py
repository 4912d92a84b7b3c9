"""Sketches of the published systems against the waist: their messages and the skeletons of their handlers."""
