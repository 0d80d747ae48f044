"""Arithmetic whose errors have a known sign."""
