"""Who belongs to a network: identities, certificates of an operator, revocation, and signatures of events."""
