"""What a protocol author uses: values, filters, messages, the protocol interface and parts to compose."""
