"""Theorems of papers on the last iterate, as published; a folder for each paper.

A paper exports BOUNDS and, where it has some, LOWER_BOUNDS and APPROXIMATIONS.
"""

from types import ModuleType

from lastiterate.bounds.published import (
    altschuler_talwar,
    bok_su_altschuler,
    chien_li,
    chourasia_ye_shokri,
    feldman_mironov_talwar_thakurta,
    steinke_et_al,
    ye_shokri,
)

PAPERS: tuple[ModuleType, ...] = (
    bok_su_altschuler,
    altschuler_talwar,
    ye_shokri,
    chien_li,
    chourasia_ye_shokri,
    feldman_mironov_talwar_thakurta,
    steinke_et_al,
)
