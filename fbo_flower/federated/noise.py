"""How far a metric of some clients is from that of all: the variance that sampling clients causes.

A trial is judged by clients that were drawn from the federation, and Kuo et al. show that this noise alone
reverses rankings [Kuo2023]. Its size is known from the clients' own numbers. The aggregated metric
is the ratio `m = sum_i w_i m_i / sum_i w_i` of a sample of `n` out of `N` clients, so

    Var m  ~  (1 - n / N)  n / (n - 1)  sum_i (w_i / sum_j w_j)^2 (m_i - m)^2

[Cochran1977, Eq. 6.13 with the sample's weights]. With equal weights that is the textbook
`(1 - n / N) s^2 / n`, which is unbiased.

A weighted median is judged in the same way, with two changes: the values' spread is `1.4826` times the median
of `|m_i - m|`, which a false value cannot raise, and the variance is `pi / 2` times that of the mean, as for
normal values.

References
----------
[Kuo2023] Kuo, Thaker, Khodak, Nguyen, Jiang, Talwalkar, Smith. On noisy evaluation in federated
hyperparameter tuning. MLSys 2023.
[Cochran1977] Cochran. Sampling techniques, third edition. Wiley 1977.
"""

from __future__ import annotations

import numpy as np

from fbo_flower.algorithms.records import Array


def sampling_variance(values: Array, weights: Array, population: int) -> float:
    """Return the variance of the weighted mean of sampled clients' values about that of all clients.

    Parameters
    ----------
    values, weights : `(n,)`, of the clients in the sample; weights are positive
    population : `N >= n`, number of clients in the federation

    Returns
    -------
    0 if all clients are in the sample. With a single client there is nothing to estimate from: NaN.
    """
    n = len(values)
    if n >= population:
        return 0.0
    if n < 2:
        return float("nan")
    shares = weights / weights.sum()
    deviations = values - shares @ values
    return float((1.0 - n / population) * n / (n - 1) * np.sum((shares * deviations) ** 2))


def median_variance(values: Array, weights: Array, median: float, population: int) -> float:
    """Return the variance of the weighted median of sampled clients' values; see `sampling_variance`."""
    n = len(values)
    if n >= population:
        return 0.0
    if n < 2:
        return float("nan")
    shares = weights / weights.sum()
    spread = 1.4826 * float(np.median(np.abs(values - median)))
    return float(np.pi / 2.0 * (1.0 - n / population) * n / (n - 1) * np.sum(shares**2) * spread**2)
