"""Experiments of the Co-KG paper."""
