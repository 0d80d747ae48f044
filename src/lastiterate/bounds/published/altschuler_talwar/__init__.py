"""Altschuler and Talwar 2022: Renyi divergences on a bounded domain, and a lower bound."""

from lastiterate.bounds.published.altschuler_talwar import by_iteration, by_sampling
from lastiterate.bounds.published.altschuler_talwar.random_walk_lower_bound import LOWER_BOUNDS

__all__ = ["BOUNDS", "LOWER_BOUNDS"]

BOUNDS = (*by_iteration.BOUNDS, *by_sampling.BOUNDS)
