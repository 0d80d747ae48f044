"""What was spent on one data set: every release, their composition, and what is left."""
