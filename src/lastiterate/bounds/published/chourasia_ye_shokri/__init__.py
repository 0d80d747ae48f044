"""Chourasia, Ye and Shokri 2021: Renyi divergences of full-batch descent as a diffusion."""

from lastiterate.bounds.published.chourasia_ye_shokri.diffusion_bounds import BOUNDS, LOWER_BOUNDS

__all__ = ["BOUNDS", "LOWER_BOUNDS"]
