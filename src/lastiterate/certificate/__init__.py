"""Certificates of trainings: statements of guarantees that anyone can derive again."""
