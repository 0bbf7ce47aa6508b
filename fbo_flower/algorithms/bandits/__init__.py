"""Comparators of PF-PNE: HCT on cells, Fed1-UCB and FN-UCB on arms."""
