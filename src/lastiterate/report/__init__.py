"""Reports of what is certified of a run, for people to read and for programs to keep."""

from lastiterate.report.text import as_text

__all__ = ["as_text"]
