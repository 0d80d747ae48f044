"""Tables of private rows, read by what is publicly known of their columns."""
