"""The cost of hiding one example in runs with momentum, or in averages of iterates."""
