"""Experiments of the PF-PNE paper."""
