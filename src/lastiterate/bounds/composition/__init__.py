"""Bounds by composition: all steps count, as if every iterate were published."""
