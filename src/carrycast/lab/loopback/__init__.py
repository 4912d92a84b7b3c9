"""A small world of its own: live nodes of one process on real sockets, with links that come and go as told."""
