"""Flags that several commands share, their types and defaults."""
