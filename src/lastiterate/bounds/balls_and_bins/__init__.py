"""Bounds for batches that are drawn as balls into bins."""
