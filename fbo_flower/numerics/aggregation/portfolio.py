"""Choose a portfolio of points that together are good for many functions (the agents' messages).

Notation: `S` candidate points, `N` messages; `z (S, N)` is the function of message `n` at candidate `s`,
standardised over the candidates, so that every agent has the same weight.

The first point maximises `mean_n z_n(x)`. Each further point maximises the mean improvement
`mean_n max(0, z_n(x) - max_{j <= k} z_n(x_j))`, so it helps the agents for which no earlier point is good.
The objective is monotone and submodular, so the greedy portfolio reaches at least `1 - 1/e` of the best
possible value [Nemhauser, Wolsey and Fisher 1978].
"""

from __future__ import annotations

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates.transforms import mean_ranks

LEAST_GAIN = 1e-12  # in standard deviations of a message; a smaller one is rounding


def standardise_columns(values: Array) -> Array:
    """Return `values` `(S, N)` with mean 0 and s.d. 1 in every column; constant columns become zeros."""
    centred = values - values.mean(axis=0)
    stddev = centred.std(axis=0)
    return np.asarray(centred / np.where(stddev > 1e-12, stddev, np.inf), dtype=np.float64)


def next_point(z: Array, taken: Array) -> int | None:
    """Return the index of the candidate with the largest mean improvement over the points already taken.

    Returns
    -------
    None, if no candidate is better than the others or than the points taken: the messages say nothing more.

    Parameters
    ----------
    z : `(S, N)`, standardised messages at the candidates
    taken : `(k, N)`, the same messages at the points taken so far; `k` may be 0
    """
    if len(taken) == 0:
        gain = z.mean(axis=1)
        gain = gain - gain.min()
    else:
        gain = np.maximum(z - taken.max(axis=0), 0.0).mean(axis=1)
    best = int(np.argmax(gain))
    return best if gain[best] > LEAST_GAIN else None


def rank_agreement(z: Array, target: Array) -> Array:
    """Return Spearman's rank correlation `(N,)` of every column of `z` `(S, N)` with `target` `(S,)`."""
    ranks = np.column_stack([mean_ranks(column) for column in z.T]) if z.shape[1] else z
    own = mean_ranks(target)
    centred, own = ranks - ranks.mean(axis=0), own - own.mean()
    norms = np.sqrt((centred**2).sum(axis=0) * (own @ own))
    return np.asarray(own @ centred / np.where(norms > 0, norms, np.inf), dtype=np.float64)
