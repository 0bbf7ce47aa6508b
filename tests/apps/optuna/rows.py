"""The rows of a site, for the scripts beside this file."""

import sys

import numpy as np

site, seed, num_trials = map(int, sys.argv[1:4])


def rows_of(load, number):
    """Return the site's rows of a data set that scikit-learn bundles, and what is to be predicted."""
    x, y = load(return_X_y=True)
    rows = np.random.default_rng(site).permutation(len(y))[:number]
    return x[rows], y[rows]
