"""The baselines: flooding, gossip and epidemic, in a connected and in a partitioned network."""
