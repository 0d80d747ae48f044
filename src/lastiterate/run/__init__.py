"""Descriptions of training runs: frozen data, no mathematics."""
