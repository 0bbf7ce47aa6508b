"""Split the rows of one data set among agents; a part is an ascending array of row numbers.

`stratified_random` (SRS) and `clustered` (DRC) pair buckets of two classes in reverse order of size
[Sun2019]: each class is cut into as many buckets as there are sites, at random or by clusters, and site `i`
gets the `i`-th smallest bucket of the lower label and the `i`-th largest of the higher one. With clusters of
unequal sizes the sites differ in prevalence: the first sites hold almost only the higher label, the last ones
almost none of it, and a site may have a single class.

References
----------
[Hsu2019] Hsu, Qi, Brown. Measuring the effects of non-identical data distribution. arXiv:1909.06335.
[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019, section 4.3.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fbo_flower.errors import ConfigError
from fbo_flower.space.checks import check_integer, check_number

Rows = NDArray[np.intp]


def dirichlet(
    labels: ArrayLike,
    num_parts: int,
    concentration: float,
    rng: np.random.Generator,
    min_size: int = 1,
    min_classes: int = 1,
) -> list[Rows]:
    """Give each part its own mix of classes and its own size [Hsu2019].

    The parts share each class in proportions `p ~ Dirichlet(concentration, ..., concentration)`. First, each
    part gets one row of each of `min_classes` classes, if possible of those in which its shares are largest.
    At the end, rows move from the largest parts to parts below `min_size`. So the minima hold for every
    concentration, without drawing again.

    Parameters
    ----------
    labels : `(n,)`
    concentration : small: most of a class goes to few parts; large: equal parts
    min_size, min_classes : smallest number of rows, and of different classes, of each part

    Returns
    -------
    `num_parts` arrays; every row is in exactly one of them
    """
    values, codes = np.unique(np.asarray(labels), return_inverse=True)
    num_parts = check_integer("dirichlet: num_parts", num_parts, 1)
    min_size = check_integer("dirichlet: min_size", min_size, 1)
    min_classes = check_integer("dirichlet: min_classes", min_classes, 1)
    concentration = check_number("dirichlet: concentration", concentration, 1e-300, 1e300)
    _check(codes, len(values), num_parts, min_size, min_classes)
    pools = [rng.permutation(np.flatnonzero(codes == c)).tolist() for c in range(len(values))]
    shares = rng.dirichlet(np.full(num_parts, float(concentration)), size=len(values))  # class x part

    parts = _reserve(pools, shares, min_classes)
    for pool, share in zip(pools, shares, strict=True):
        cuts = np.rint(np.cumsum(share)[:-1] * len(pool)).astype(np.intp)
        for part, rows in zip(parts, np.split(np.array(pool, dtype=np.intp), cuts), strict=True):
            part.extend(rows.tolist())
    _fill(parts, codes, min_size)
    return [np.array(sorted(part), dtype=np.intp) for part in parts]


def by_group(groups: ArrayLike) -> list[Rows]:
    """Return one part for each distinct group (a person, a site), in ascending order of the groups."""
    values, codes = np.unique(np.asarray(groups), return_inverse=True)
    return [np.flatnonzero(codes == code) for code in range(len(values))]


def train_validation(labels: ArrayLike, train_fraction: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Split rows into a training and a validation part, class by class where possible.

    A class with two or more rows is in both parts. A class with a single row is in the training part only, so
    that validation contains no class that a model has never seen.

    Raises
    ------
    ConfigError
        If every class has a single row, so that no row is left for validation.
    """
    train_fraction = check_number("train_fraction", train_fraction, 0.0, 1.0)
    train: list[Rows] = []
    validation: list[Rows] = []
    for rows in by_group(labels):
        shuffled = rng.permutation(rows)
        num_train = max(1, min(round(train_fraction * len(rows)), len(rows) - 1))
        train.append(shuffled[:num_train])
        validation.append(shuffled[num_train:])
    if not any(rows.size for rows in validation):
        raise ConfigError(f"labels: expected a class with two rows to split, got {len(train)} single rows")
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(validation))


def _check(codes: Rows, num_classes: int, num_parts: int, min_size: int, min_classes: int) -> None:
    needed = max(min_size, min_classes)
    if codes.size < num_parts * needed:
        raise ConfigError(
            f"dirichlet: expected at least {num_parts * needed} rows for {num_parts} parts of {needed}, "
            f"got {codes.size}"
        )
    # a class can give a row to at most as many parts as it has rows
    servings = int(np.minimum(np.bincount(codes, minlength=num_classes), num_parts).sum())
    if servings < num_parts * min_classes:
        raise ConfigError(
            f"dirichlet: expected rows for {min_classes} classes in each of {num_parts} parts, "
            f"got {num_classes} classes that serve {servings} of {num_parts * min_classes}"
        )


def _reserve(pools: list[list[int]], shares: NDArray[np.float64], min_classes: int) -> list[list[int]]:
    """Take one row of each of `min_classes` classes out of the pools for each part, preferably large shares.

    When `r` parts still need rows, the pools suffice iff `sum_c min(len_c, r) >= r min_classes` (Gale-Ryser).
    After one more part the pools still suffice iff that part takes at most `slack` rows from scarce classes,
    which have fewer than `r` rows.
    """
    num_parts = shares.shape[1]
    parts: list[list[int]] = []
    for k in range(num_parts):
        left = num_parts - k - 1
        slack = sum(min(len(pool), left) for pool in pools) - left * min_classes
        part: list[int] = []
        for c in np.argsort(-shares[:, k], kind="stable"):
            pool = pools[c]
            scarce = len(pool) <= left
            if len(part) == min_classes:
                break
            if pool and (slack > 0 or not scarce):
                part.append(pool.pop())
                slack -= scarce
        parts.append(part)
    return parts


def _fill(parts: list[list[int]], codes: Rows, min_size: int) -> None:
    """Move rows, in place, from the largest parts to those below `min_size`.

    The moved row belongs to the donor's most frequent class, so the donor loses a class only if all its rows
    have different classes. Since the donor is larger than `min_size`, it keeps enough rows.
    """
    for part in parts:
        while len(part) < min_size:
            donor = max(parts, key=len)
            present = codes[donor]
            frequent = int(np.bincount(present).argmax())
            part.append(donor.pop(int(np.flatnonzero(present == frequent)[-1])))


def stratified_random(labels: ArrayLike, num_parts: int, rng: np.random.Generator) -> list[Rows]:
    """Split each class at random into buckets whose sizes differ by at most one, and pair them (SRS).

    Parameters
    ----------
    labels : `(n,)`, of two classes

    Returns
    -------
    `num_parts` arrays; every row is in exactly one of them
    """
    num_parts = check_integer("num_parts", num_parts, 1)
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
    """
    num_parts = check_integer("num_parts", num_parts, 1)
    variance = check_number("clustered: variance", variance, 1e-9, 1.0 - 1e-9)
    min_share = check_number("clustered: min_share", min_share, 0.0, 1.0 / num_parts)
    classes = _two_classes(labels, num_parts)
    scores = _principal_components(np.asarray(features, dtype=np.float64), variance)
    low, high = (_clusters(scores, rows, num_parts, rng) for rows in classes)
    parts = _pair(low, high)
    return _rebalance(parts, int(np.ceil(min_share * len(scores))), rng)


def _two_classes(labels: ArrayLike, num_parts: int) -> tuple[Rows, Rows]:
    classes = by_group(labels)
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
