"""Paper 000: management policies over publish/subscribe, stored and retrieved."""
