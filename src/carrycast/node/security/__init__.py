"""Security of nodes with keys: encrypted links, membership by certificates or a secret, and signatures of events."""
