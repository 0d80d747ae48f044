"""Attacks on a guarantee: exact instances against what is certified, and tests of real trainers."""
