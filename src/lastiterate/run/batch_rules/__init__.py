"""Batch rules: one class each, which says all that is known of it."""
