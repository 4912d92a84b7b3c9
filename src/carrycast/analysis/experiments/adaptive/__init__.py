"""Paper 004: adaptive content-based routing for delay-tolerant networks, against spcast, on the community model."""
