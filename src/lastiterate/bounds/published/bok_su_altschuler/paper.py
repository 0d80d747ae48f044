"""Bok, Su and Altschuler 2024, "Shifted interpolation for differential privacy"."""

from lastiterate.bounds.bound import Citation

PAPER = "published/bok-su-altschuler"


def cite(where: str) -> Citation:
    return Citation(
        "Bok, Su and Altschuler", 2024, "Shifted interpolation for differential privacy", where
    )
