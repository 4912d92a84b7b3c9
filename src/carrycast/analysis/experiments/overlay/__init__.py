"""Paper 002: opportunistic overlays, whose brokers follow the network, clients their brokers, and modulators both."""
