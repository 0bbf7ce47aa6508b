"""Experiments of the FTS papers."""
