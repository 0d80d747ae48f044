"""Attacks on a guarantee: exact privacy of small instances, and tests of real trainers."""
