"""Theorems of papers on the last iterate, as published; a folder for each paper.

A paper exports BOUNDS; those that have lower bounds or estimates are named below, too.
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
LOWER_BOUNDS = (
    *bok_su_altschuler.LOWER_BOUNDS,
    *altschuler_talwar.LOWER_BOUNDS,
    *chourasia_ye_shokri.LOWER_BOUNDS,
)
APPROXIMATIONS = (*bok_su_altschuler.APPROXIMATIONS, *steinke_et_al.APPROXIMATIONS)
