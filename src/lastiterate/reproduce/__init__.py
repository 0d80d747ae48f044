"""Every table and figure of the five papers, computed anew: `lastiterate reproduce`."""
