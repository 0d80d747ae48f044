"""Everything that can be reproduced, by id."""

from lastiterate.reproduce import (
    accuracy,
    bsa_figures,
    bsa_tables,
    hoelder_network,
    renyi_figures,
    unlearning_figures,
)
from lastiterate.reproduce.items import FigureItem, TableItem

ITEMS: dict[str, TableItem | FigureItem] = {
    item.id: item
    for item in (
        *bsa_tables.TABLES,
        *accuracy.TABLES,
        *unlearning_figures.TABLES,
        *bsa_figures.FIGURES,
        *renyi_figures.FIGURES,
        *hoelder_network.FIGURES,
    )
}
PAPERS = {  # as the ids begin
    "bsa": "Bok, Su and Altschuler 2024",
    "ys": "Ye and Shokri 2022",
    "cl": "Chien and Li 2024",
    "cys": "Chourasia, Ye and Shokri 2021",
    "cwcl": "Chien, Wang, Chen and Li 2024",
    "at": "Altschuler and Talwar 2022",
}
