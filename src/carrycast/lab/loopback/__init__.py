"""Live nodes in one process on loopback sockets, with links that can be made and cut."""
