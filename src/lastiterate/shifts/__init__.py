"""What it costs to hide one example: arrays in, Gaussian parameters out."""
