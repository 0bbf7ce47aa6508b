"""Surrogate models of an objective: Gaussian processes and their approximations."""
