"""Training that does what was accounted for, and nothing else."""
