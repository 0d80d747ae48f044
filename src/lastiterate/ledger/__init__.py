"""Ledgers of one data set's privacy budget: every release, their composition, and what is left."""
