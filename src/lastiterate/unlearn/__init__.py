"""Unlearning: removing examples from a published model by extra steps, with a guarantee."""
