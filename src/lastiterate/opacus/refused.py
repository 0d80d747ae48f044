"""The error for training that can neither be certified nor be charged for by composition."""

from lastiterate.errors import LastIterateError


class RefusedTraining(LastIterateError, ValueError):
    """One example may count for more than the accountant knows, so that no number is true."""

    def __init__(self, why: str, *, instead: str) -> None:
        self.why, self.instead = why, instead
        super().__init__(f"this training cannot be accounted for: {why}. Instead, {instead}.")
