"""Every table and figure of the five papers, computed anew: `python -m lastiterate.reproduce`."""
