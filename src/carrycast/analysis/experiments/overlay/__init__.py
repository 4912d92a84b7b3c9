"""Paper 002: opportunistic overlays, in which brokers, clients and modulators adapt to the network."""
