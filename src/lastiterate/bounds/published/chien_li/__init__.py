"""Chien and Li 2024: Renyi divergences without convexity or smoothness."""

from lastiterate.bounds.published.chien_li import sampling_without_replacement, theorems

__all__ = ["BOUNDS"]

BOUNDS = (*theorems.BOUNDS, *sampling_without_replacement.BOUNDS)
