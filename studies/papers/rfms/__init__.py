"""Experiments of the RFMS paper."""
