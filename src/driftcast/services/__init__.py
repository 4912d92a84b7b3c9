"""What works over any protocol."""
