"""What serves applications beyond publish and subscribe: within protocols, and above any of them."""
