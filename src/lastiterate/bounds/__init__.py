"""What is proved: one record per bound, one file per family."""
