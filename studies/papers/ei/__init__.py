"""Comparison of federated expected improvement with the best local optimisers."""
