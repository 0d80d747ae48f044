"""The last iterate of runs whose batches come from secret positions: shuffled or binned."""
