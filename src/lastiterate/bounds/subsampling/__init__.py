"""The last iterate of runs that draw every batch anew: without replacement, or Poisson."""
