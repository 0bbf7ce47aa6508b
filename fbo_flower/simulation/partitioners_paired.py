"""Make sites out of one data set by pairing buckets of both classes in reverse order of size [Sun2019].

Each class is cut into as many buckets as there are sites, at random (SRS) or by clusters (DRC). Site `i`
gets the `i`-th smallest bucket of the lower label and the `i`-th largest of the higher one. With clusters of
unequal sizes the sites differ in prevalence: the first sites hold almost only the higher label, the last ones
almost none of it, and a site may have a single class.

References
----------
[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019, section 4.3.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fbo_flower.errors import ConfigError
from fbo_flower.simulation.partitioners import Rows, by_group


def stratified_random(labels: ArrayLike, num_parts: int, rng: np.random.Generator) -> list[Rows]:
    """Split each class at random into buckets whose sizes differ by at most one, and pair them (SRS).

    Parameters
    ----------
    labels : `(n,)`, of two classes

    Returns
    -------
    `num_parts` arrays; every row is in exactly one of them

    Raises
    ------
    ConfigError
        If there are not two classes, or if a class has fewer rows than there are parts.
    """
    low, high = _two_classes(labels, num_parts)
    return _pair(*(np.array_split(rng.permutation(rows), num_parts) for rows in (low, high)))


def clustered(
    features: ArrayLike,
    labels: ArrayLike,
    num_parts: int,
    variance: float,
    rng: np.random.Generator,
    min_share: float = 0.1,
) -> list[Rows]:
    """Cluster each class along the leading principal components, and pair the clusters (DRC).

    The features are standardised, projected on the fewest components that keep `variance`, and each class is
    clustered by a Gaussian mixture with one covariance for all components. A part below `min_share` of all
    rows gets random rows, each from the part that is then the largest.

    Parameters
    ----------
    features : `(n, d)`, finite
    labels : `(n,)`, of two classes
    variance : share of the variance that the components keep, in (0, 1); the paper uses .1 and .5
    min_share : at most `1 / num_parts`

    Returns
    -------
    `num_parts` arrays; every row is in exactly one of them

    Raises
    ------
    ConfigError
        If there are not two classes, a class has fewer rows than there are parts, or an option is out of
        range.
    """
    if not 0 < variance < 1:
        raise ConfigError(f"clustered: variance: expected a number between 0 and 1, got {variance}")
    if not 0 <= min_share * num_parts <= 1:
        raise ConfigError(f"clustered: min_share: expected 0 to 1/{num_parts}, got {min_share}")
    classes = _two_classes(labels, num_parts)
    scores = _principal_components(np.asarray(features, dtype=np.float64), variance)
    low, high = (_clusters(scores, rows, num_parts, rng) for rows in classes)
    parts = _pair(low, high)
    return _rebalance(parts, int(np.ceil(min_share * len(scores))), rng)


def _two_classes(labels: ArrayLike, num_parts: int) -> tuple[Rows, Rows]:
    classes = by_group(labels)
    if num_parts < 1:
        raise ConfigError(f"num_parts: expected at least 1, got {num_parts}")
    if len(classes) != 2 or min(map(len, classes)) < num_parts:
        sizes = [len(rows) for rows in classes]
        raise ConfigError(f"labels: expected two classes of at least {num_parts} rows, got {sizes[:10]}")
    return classes[0], classes[1]


def _pair(low: list[Rows], high: list[Rows]) -> list[Rows]:
    """Join the smallest bucket of one class with the largest of the other, and so on."""
    ascending = sorted(low, key=len)
    descending = sorted(high, key=len)[::-1]
    return [np.sort(np.concatenate(pair)) for pair in zip(ascending, descending, strict=True)]


def _principal_components(features: NDArray[np.float64], variance: float) -> NDArray[np.float64]:
    """Return the scores of standardised features on the fewest components with more than `variance`."""
    centred = features - features.mean(axis=0)
    stddev = centred.std(axis=0)
    standardised = centred / np.where(stddev > 0, stddev, 1.0)
    left, singular, _ = np.linalg.svd(standardised, full_matrices=False)
    explained = np.cumsum(singular**2) / np.sum(singular**2)
    kept = int(np.searchsorted(explained, variance, side="right")) + 1
    scores: NDArray[np.float64] = left[:, :kept] * singular[:kept]
    return scores


def _clusters(scores: NDArray[np.float64], rows: Rows, num: int, rng: np.random.Generator) -> list[Rows]:
    """Return the rows of each component; a component may be empty."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(num, covariance_type="tied", random_state=int(rng.integers(2**31)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # clusters before convergence serve as well
        component = mixture.fit_predict(scores[rows])
    return [rows[component == k] for k in range(num)]


def _rebalance(parts: list[Rows], min_size: int, rng: np.random.Generator) -> list[Rows]:
    """Fill parts below `min_size`, row by row, with random rows of the largest part."""
    lists = [part.tolist() for part in parts]
    for part in sorted(lists, key=len):
        while len(part) < min_size:
            donor = max(lists, key=len)
            part.append(donor.pop(int(rng.integers(len(donor)))))
    return [np.array(sorted(part), dtype=np.intp) for part in lists]
