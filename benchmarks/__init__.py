"""How fast carrycast is, against straightforward programs run in the same call. `make bench` prints and writes all."""
