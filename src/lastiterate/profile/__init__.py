"""How private: one type per notion, all with the same questions."""
