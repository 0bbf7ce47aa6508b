"""Partitions of the unit cube, confidence bounds and eliminations."""
