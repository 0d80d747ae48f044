"""Runs that can be solved exactly, for lower bounds and for exact audits."""
