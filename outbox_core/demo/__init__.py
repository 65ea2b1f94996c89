"""The demonstration: an order service, a relay that is killed, a broker that is frozen, and a ledger that adds up."""
