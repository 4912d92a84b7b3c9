"""Paper 003: broker and rendezvous publish/subscribe over AODV and GPSR, on highways and in Manhattan."""
