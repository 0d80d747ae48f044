"""Theorems of five papers, as published; a file for each paper."""
