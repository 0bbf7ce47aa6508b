"""RGPE and TAF: comparators of FTS that send whole posteriors."""
