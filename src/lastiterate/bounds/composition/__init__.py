"""Composition: every iterate is charged for, as if all had been published."""
