"""Acquisition functions, and the choice of the next point to evaluate."""
