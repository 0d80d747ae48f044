"""Bok, Su and Altschuler 2024: bounds in f-DP, lower bounds, and estimates by limit theorems."""

from lastiterate.bounds.published.bok_su_altschuler import fixed_order, sampled
from lastiterate.bounds.published.bok_su_altschuler.estimates import APPROXIMATIONS
from lastiterate.bounds.published.bok_su_altschuler.lower_bounds import LOWER_BOUNDS

__all__ = ["APPROXIMATIONS", "BOUNDS", "LOWER_BOUNDS"]

BOUNDS = (*fixed_order.BOUNDS, *sampled.BOUNDS)
