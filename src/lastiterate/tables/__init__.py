"""Tables of private rows, encoded by public facts on their columns."""
