"""The adapter kit: the lifecycle of a broker's dispatcher, its link, the form on the wire, its options."""
