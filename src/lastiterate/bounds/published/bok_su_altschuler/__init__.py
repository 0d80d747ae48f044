"""Bok, Su and Altschuler 2024: bounds in f-DP, lower bounds, and estimates by limit theorems."""

from lastiterate.bounds.published.bok_su_altschuler import closed_forms, sampled_batches
from lastiterate.bounds.published.bok_su_altschuler.estimates import APPROXIMATIONS
from lastiterate.bounds.published.bok_su_altschuler.quadratic_lower_bounds import LOWER_BOUNDS

__all__ = ["APPROXIMATIONS", "BOUNDS", "LOWER_BOUNDS"]

BOUNDS = (*closed_forms.BOUNDS, *sampled_batches.BOUNDS)
