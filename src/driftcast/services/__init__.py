"""What protocols compose to serve applications beyond publish and subscribe."""
