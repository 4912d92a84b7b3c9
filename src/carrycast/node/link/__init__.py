"""From a neighbor's datagrams to messages and back: sockets, frames, acknowledgement, cost."""
