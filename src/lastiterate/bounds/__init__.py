"""Bounds on privacy loss: one record per bound, one file per family."""
