"""Drift where it was not designed: networks varied one by one."""
