"""What was promised of a training: a statement that anyone can derive again."""
