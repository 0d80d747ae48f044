"""What is true: runs that can be solved exactly, for lower bounds and exact audits alike."""
