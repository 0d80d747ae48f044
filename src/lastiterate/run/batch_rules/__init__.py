"""How batches are drawn: each rule is one class that says all that is known of it."""
