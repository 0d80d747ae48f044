"""What was trained: frozen data, no mathematics."""
