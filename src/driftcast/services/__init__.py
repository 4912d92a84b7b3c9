"""What stands above any protocol: it publishes, subscribes, advertises and requests as a client does."""
