"""Bounds for batches drawn anew in every step: without replacement, or Poisson."""

from __future__ import annotations
