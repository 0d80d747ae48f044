"""Making a published model forget some of its examples, with a guarantee."""
