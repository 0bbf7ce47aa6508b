"""Measurements of speed and of choices: `python -m studies.benchmarks.NAME --help`."""
