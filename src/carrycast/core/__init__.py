"""The protocol author's API: data model, filters, messages, the protocol interface and parts to compose."""
