"""The law of what random participations cost.  In order: faces, law, release; unpaid, windows."""
