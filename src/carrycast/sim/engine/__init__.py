"""The engine: a queue of what happens next, nodes, and the media between them."""
