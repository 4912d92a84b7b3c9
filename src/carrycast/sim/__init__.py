"""The simulated environment: scenarios, movement, contacts, radios and the engine that runs protocols on them."""
