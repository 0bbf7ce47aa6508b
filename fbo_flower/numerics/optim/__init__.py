"""Maximise functions on the unit cube; point sets and interpolation."""
