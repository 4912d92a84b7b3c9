"""Where applications come in: the control channel, its client, and who subscribes to what."""
