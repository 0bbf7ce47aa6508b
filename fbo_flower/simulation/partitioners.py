"""Ways to spread the rows of one data set over agents; a part is an ascending array of row numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fbo_flower.errors import ConfigError

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

    Every class is dealt out by shares `p ~ Dirichlet(concentration, ..., concentration)`. Before that, each
    part receives one row of `min_classes` classes, those it has the largest shares of as far as there are
    enough rows; afterwards, parts below `min_size` are filled up from the largest ones. So the minima are
    met without drawing again, whatever the concentration.

    [Hsu2019] Hsu, Qi, Brown. Measuring the effects of non-identical data distribution. arXiv:1909.06335.

    Parameters
    ----------
    labels : `(n,)`
    concentration : small: most of a class goes to few parts; large: equal parts
    min_size, min_classes : rows and different classes that each part has at least

    Returns
    -------
    `num_parts` arrays; every row is in exactly one

    Raises
    ------
    ConfigError
        If there are not enough rows or classes.
    """
    values, codes = np.unique(np.asarray(labels), return_inverse=True)
    _check(codes, len(values), num_parts, concentration, min_size, min_classes)
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
    """Make one part of each distinct group (a person, a site), in the order of their values."""
    values, codes = np.unique(np.asarray(groups), return_inverse=True)
    return [np.flatnonzero(codes == code) for code in range(len(values))]


def train_validation(labels: ArrayLike, train_fraction: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Split class by class, so far as that can be done.

    A class with two or more rows is in both halves; a class with one row is in the first only, so that no
    model is asked for a class that it has never seen.

    Raises
    ------
    ConfigError
        If every class has a single row, so that nothing would be left to validate on.
    """
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


def _check(
    codes: Rows, num_classes: int, num_parts: int, concentration: float, min_size: int, min_classes: int
) -> None:
    if num_parts < 1 or min_size < 1 or min_classes < 1:
        raise ConfigError(
            "dirichlet: expected num_parts, min_size and min_classes of at least 1, "
            f"got {num_parts}, {min_size} and {min_classes}"
        )
    if not (np.isfinite(concentration) and concentration > 0):
        raise ConfigError(f"dirichlet: concentration: expected a positive number, got {concentration}")
    needed = max(min_size, min_classes)
    if codes.size < num_parts * needed:
        raise ConfigError(
            f"dirichlet: expected at least {num_parts * needed} rows for {num_parts} parts of {needed}, "
            f"got {codes.size}"
        )
    # a class serves at most as many parts as it has rows
    servings = int(np.minimum(np.bincount(codes, minlength=num_classes), num_parts).sum())
    if servings < num_parts * min_classes:
        raise ConfigError(
            f"dirichlet: expected rows for {min_classes} classes in each of {num_parts} parts, "
            f"got {num_classes} classes that serve {servings} of {num_parts * min_classes}"
        )


def _reserve(pools: list[list[int]], shares: NDArray[np.float64], min_classes: int) -> list[list[int]]:
    """Take one row of `min_classes` classes out of the pools for each part, by preference where possible.

    With `r` parts still to serve, the pools suffice iff `sum_c min(len_c, r) >= r min_classes` (Gale-Ryser).
    Serving one of them leaves enough iff it takes at most `slack` rows from scarce classes, those with fewer
    than `r` rows.
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

    The row moved is one of the donor's most frequent class, so the donor loses a class only if all its rows
    are of different classes; being larger than `min_size`, it has enough left.
    """
    for part in parts:
        while len(part) < min_size:
            donor = max(parts, key=len)
            present = codes[donor]
            frequent = int(np.bincount(present).argmax())
            part.append(donor.pop(int(np.flatnonzero(present == frequent)[-1])))
