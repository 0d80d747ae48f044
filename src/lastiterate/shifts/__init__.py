"""The least cost of hiding one example by shifts: arrays in, Gaussian parameters out."""
