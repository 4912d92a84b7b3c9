"""Live nodes of one process on loopback sockets, with links that come and go."""
