"""The engine: an event queue, nodes, and the media between them."""
