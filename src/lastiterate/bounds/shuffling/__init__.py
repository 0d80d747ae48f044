"""Bounds for secret positions: batches are shuffled, or drawn by each example on its own."""
