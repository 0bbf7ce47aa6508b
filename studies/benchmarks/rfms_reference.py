"""Compare the proposals of RFMS with a plain reference, one part exchanged at a time.

    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.rfms_reference [replications]

Two losses in two dimensions, with and without noise, 10 random and 30 chosen points. The reference fits
scikit-learn's Gaussian process by maximum likelihood, computes the expected hypervolume improvement as a sum
over the strips of the front, and takes the best of 3400 random points. Every row starts from the same points
and gets the same noise. Columns: the area that the noiseless losses of all evaluated points dominate, with
(1, 1) as the reference point, and the area of those points that the observed losses put on the front. Both
are followed by the mean difference from the first row and its standard error.

A second table compares the incumbents of "fso 0.5" on the same losses, with 20 random and 40 chosen points.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import moocore
import numpy as np
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from fbo_flower.algorithms.rfms.state import Method
from fbo_flower.numerics.acquisition import proposals
from fbo_flower.numerics.acquisition.hypervolume import hypervolume, non_dominated
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.functions import Differentiable
from fbo_flower.numerics.optim.maximise import maximise
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.threads import single_thread
from studies.benchmarks.bench import both, say
from studies.report import head

ONES = np.ones(2)


def bowls(x: Array) -> Array:
    """Return two shifted quadratics; their front is the segment between the centres."""
    return np.stack([np.square(x - 0.25).sum(axis=1), np.square(x - 0.75).sum(axis=1)], axis=1) / 0.6


def sites(x: Array) -> Array:
    """Return losses like those of two sites: constant on half of the square, where the model guesses."""
    first = 0.2 + 4 * np.square(x - [0.3, 0.6]).sum(axis=1)
    second = 0.3 + 4 * (np.square(x - [0.6, 0.35]) * [1.0, 3.0]).sum(axis=1)
    return np.minimum(np.stack([first, second], axis=1), 1.0)


LOSSES: dict[str, Callable[[Array], Array]] = {"bowls": bowls, "sites": sites}
NOISES = (0.0, 0.05)


@dataclass(frozen=True)
class Parts:
    """The parts of a proposal.

    Parameters
    ----------
    corner : reference point: "means" and "observed": a tenth of the range beyond the front of posterior means
        or of observed losses; "ones"
    front : the front that is improved: "means" or "observed"
    fit : "mode" of the posterior, as the package, or maximum "likelihood" by scikit-learn
    search : "polished" Sobol points as the package, "close": without its least distance, or "random" points
    """

    corner: str = "means"
    front: str = "means"
    fit: str = "mode"
    search: str = "polished"


PACKAGE = Parts()
ONES_PACKAGE = Parts(corner="ones")
ROWS = {
    "corner of the observed front": replace(PACKAGE, corner="observed"),
    'package, volume_reference = "front"': PACKAGE,
    'package, volume_reference = "ones"': ONES_PACKAGE,
    "ones, observed front": replace(ONES_PACKAGE, front="observed"),
    "ones, scikit-learn's fit": replace(ONES_PACKAGE, fit="likelihood"),
    "ones, no least distance": replace(ONES_PACKAGE, search="close"),
    "ones, random candidates": replace(ONES_PACKAGE, search="random"),
    "reference": Parts("ones", "means", "likelihood", "random"),
}


def likelihood_fit(x: Array, y: Array) -> gp.Hyperparameters:
    """Return the maximum likelihood hyperparameters that scikit-learn finds."""
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * Matern(np.full(x.shape[1], 0.3), (1e-2, 1e1), nu=2.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = GaussianProcessRegressor(kernel + WhiteKernel(1e-2, (1e-8, 1.0))).fit(x, y).kernel_
    scales = np.atleast_1d(fitted.k1.k2.length_scale).astype(np.float64)
    return gp.Hyperparameters(
        "matern52", scales, float(fitted.k1.k1.constant_value), float(fitted.k2.noise_level)
    )


def strip_improvement(means: Array, stddevs: Array, front: Array, corner: Array) -> Array:
    """Return the expected hypervolume improvement `(m,)`, strip by strip.

    A strip between two neighbours of the front adds the expected width that `Y_1` opens in it times the
    expected gain of `Y_2` under the strip's height.
    """
    inside = front[(front < corner).all(axis=1)]
    inside = inside[np.lexsort((inside[:, 1], inside[:, 0]))]
    total, left, height = np.zeros(len(means)), -np.inf, corner[1]
    for first, second in [*inside.tolist(), [corner[0], -np.inf]]:
        if second >= height:  # dominated
            continue
        total += (_gain(first, means[:, 0], stddevs[:, 0]) - _gain(left, means[:, 0], stddevs[:, 0])) * _gain(
            height, means[:, 1], stddevs[:, 1]
        )
        left, height = first, second
    return total


def _gain(edge: float, mean: Array, stddev: Array) -> Array:
    """Return `E max(edge - Y, 0)`."""
    if edge == -np.inf:
        return np.zeros_like(mean)
    z = (edge - mean) / stddev
    return np.asarray(stddev * (z * norm.cdf(z) + norm.pdf(z)))


def propose(x: Array, losses: Array, parts: Parts, rng: np.random.Generator) -> Array:
    """Return the next point `(2,)`."""
    plan = proposals.plan_volume_improvement(x, losses, ONES if parts.corner == "ones" else None)
    if parts.fit == "mode":
        function = plan.fitted(proposals.KERNEL)
    else:
        function = plan.given([likelihood_fit(plan.x, y) for y in plan.targets])
    assert isinstance(function, proposals.LogVolumeImprovement)
    observed = -np.stack(plan.targets, axis=1)
    if parts.corner == "observed":
        margin = proposals.REFERENCE_MARGIN * np.ptp(observed, axis=0)
        corner = observed[non_dominated(-observed)].max(axis=0) + margin
        function = replace(function, reference=-corner)
    if parts.front == "observed":
        function = replace(function, values=-observed)
    if parts.search == "random":
        return best_of_random(function, rng)
    distance = 0.0 if parts.search == "close" else proposals.MIN_DISTANCE
    return next_point(function, x, rng, distance)


def next_point(
    function: Differentiable, x: Array, rng: np.random.Generator, distance: float = proposals.MIN_DISTANCE
) -> Array:
    """Return the maximiser of an acquisition in the cube that keeps its distance from observed points."""
    candidates, columns = sobol(proposals.NUM_CANDIDATES, x.shape[1], rng), np.arange(x.shape[1])
    return maximise([function], candidates[None], columns, avoid=x[None], min_distance=distance)[0].x


def best_of_random(function: proposals.LogVolumeImprovement, rng: np.random.Generator) -> Array:
    """Return the best of 3000 random points and of 400 around the best."""

    def values(z: Array) -> Array:
        found = [posterior.predict(z) for posterior in function.posteriors]
        means = np.stack([-mean for mean, _ in found], axis=1)
        stddevs = np.sqrt(np.maximum([variance for _, variance in found], 1e-18)).T
        return strip_improvement(means, stddevs, -function.values, -function.reference)

    z = rng.random((3000, 2))
    best: Array = z[values(z).argmax()]
    for width in (0.02, 0.003):
        near = np.clip(best + width * rng.standard_normal((200, 2)), 0, 1)
        z = np.vstack([best, near])
        best = z[values(z).argmax()]
    return best


def search(
    truth: Callable[[Array], Array],
    noise: float,
    seed: int,
    sizes: tuple[int, int],
    choose: Callable[[Array, Array, np.random.Generator], Array],
) -> tuple[Array, Array]:
    """Return the noiseless and the observed losses `(n, 2)` of one search."""
    start, end = sizes
    x = np.random.default_rng([seed, 1]).random((start, 2))
    errors = noise * np.random.default_rng([seed, 2]).standard_normal((end, 2))
    rng = np.random.default_rng([seed, 3])
    while len(x) < end:
        x = np.vstack([x, choose(x, truth(x) + errors[: len(x)], rng)])
    return truth(x), truth(x) + errors


def areas(parts: Parts, truth: Callable[[Array], Array], noise: float, seed: int) -> tuple[float, float]:
    """Return the area of all points and that of the observed front."""
    found, observed = search(truth, noise, seed, (10, 40), lambda x, y, rng: propose(x, y, parts, rng))
    front = found[non_dominated(-observed)]
    return moocore.hypervolume(found, ref=ONES), moocore.hypervolume(front, ref=ONES)


def combined(best: str, truth: Callable[[Array], Array], noise: float, seed: int) -> tuple[float, float]:
    """Return the noiseless loss of what "fso 0.5" ships and the area of its observed front.

    Parameters
    ----------
    best : the incumbent, largest posterior "mean" or largest "observed" value
    """
    method = Method("fso", 0.5, incumbent=best)

    def choose(x: Array, losses: Array, rng: np.random.Generator) -> Array:
        function = method.plan(x, losses, rng).fitted(proposals.KERNEL)
        return next_point(function, x, rng)

    found, observed = search(truth, noise, seed, (20, 60), choose)
    front = found[non_dominated(-observed)]
    return float(method.combined(found)[method.combined(observed).argmin()]), hypervolume(-front, -ONES)


def table(rows: Sequence[tuple[str, Callable[..., tuple[float, float]]]], repeats: int) -> None:
    """Print a row per variant, losses and noise, with differences from the first variant."""
    for name, truth in LOSSES.items():
        for noise in NOISES:
            first = None
            for label, measure in rows:
                values = np.array([measure(truth, noise, seed) for seed in range(repeats)])
                first = values if first is None else first
                gaps = both(values - first, 4)
                cells = [
                    c
                    for mean, gap in zip(values.mean(axis=0), gaps, strict=True)
                    for c in (f"{mean:.4f}", gap)
                ]
                say(name, noise, label, *cells)


def main(repeats: int) -> None:
    """Print both tables."""
    print(
        head(["losses", "noise", "proposal", "area of all points", "- first", "area of the front", "- first"])
    )
    table([(label, lambda *a, p=parts: areas(p, *a)) for label, parts in ROWS.items()], repeats)
    columns = ["incumbent", "loss of the shipped", "- first", "area of the front", "- first"]
    print("\n" + head(["losses", "noise", *columns]))
    table([(best, lambda *a, b=best: combined(b, *a)) for best in ("mean", "observed")], repeats)


if __name__ == "__main__":
    with single_thread():
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
