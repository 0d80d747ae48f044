"""Ye and Shokri 2022: Renyi divergences of strongly convex descent."""

from lastiterate.bounds.published.ye_shokri import logistic_regression, noisy_descent_bounds

__all__ = ["BOUNDS"]

BOUNDS = (*noisy_descent_bounds.BOUNDS, *logistic_regression.BOUNDS)
