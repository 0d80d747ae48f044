"""Chien and Li 2024: Renyi divergences without convexity or smoothness."""

from lastiterate.bounds.published.chien_li.theorems import BOUNDS

__all__ = ["BOUNDS"]
