"""The emulated lab: a scenario's world played to live nodes of one process, on real sockets and in real time."""
