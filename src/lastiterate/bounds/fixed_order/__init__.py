"""The last iterate of runs whose batch order is fixed, or given."""
