"""Paper 001: announcement, subscription, publication, with processors on two stations, over 802.11b."""
