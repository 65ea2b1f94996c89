"""What an adapter to a broker is made of: its lifecycle, its link, the form on the wire, its options."""
