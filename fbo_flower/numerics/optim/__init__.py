"""Functions on the unit cube, point sets and maximisation."""
