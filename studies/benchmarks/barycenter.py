"""Measure the CPU time of the Wasserstein barycenter of 10 agents' posteriors on 400 points, beside POT's.

    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.barycenter

20 x 20 points, "rbf" with lengthscale .2, noise variance .02, 20 observations for each agent. Ours starts
from the messages (mean and covariance at the pivots, as whitened covariances) and ends with the covariance of
all points; or it starts from the dense covariances, like POT. POT (MIT, `pip install fbo-flower[bench]`) is
optional. POT takes square roots of eigenvalues that rounding has made negative, so it gets the smallest
jitter with which it finishes, and a second run in our coordinates. Its method is the default one;
"gradient_descent" contracts three matrices in one unoptimised `einsum` and takes minutes for a step. Every
result is judged by the same plain formulas on the dense covariances: the residual of Eq. 8 and the spread
`sum_n w_n W_2^2`. Ours must reach half the residual of POT's result; a ratio is printed only if it is at
least as good.
"""

from __future__ import annotations

import contextlib
import functools
import io
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from fbo_flower.numerics.aggregation import bures
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.surrogates import gp, pivots
from fbo_flower.numerics.threads import single_thread
from studies.benchmarks.bench import cpu_ms, mesh

AGENTS, SIDE, OBSERVATIONS, REPEATS = 10, 20, 20, 5
HYPERPARAMETERS = gp.Hyperparameters("rbf", np.array([0.2, 0.2]), 1.0, 0.02)
POT_TOLERANCE = 1e-5  # relative to the covariance; POT's own is absolute


@dataclass(frozen=True)
class Scene:
    """The posteriors of ten agents, dense and at the pivots.

    Attributes
    ----------
    dense, whitened : covariances of all points, and whitened ones of the pivots
    directions, scale : of `pivots.principal`
    """

    dense: Array
    whitened: Array
    directions: Array
    scale: Array

    @staticmethod
    def drawn() -> Scene:
        """Return agents with random observations."""
        points, rng = mesh(SIDE), np.random.default_rng(0)
        chosen = pivots.choose_pivots(points, HYPERPARAMETERS, 1e-8)
        factor = pivots.pivot_factor(points[chosen.index], HYPERPARAMETERS)
        dense, whitened = [], []
        for _ in range(AGENTS):
            x = points[rng.integers(0, len(points), OBSERVATIONS)]
            posterior = gp.posterior(x, np.zeros(len(x)), HYPERPARAMETERS)
            dense.append(posterior.covariance(points))
            at_pivots = posterior.covariance(points[chosen.index])
            whitened.append(pivots.whiten(np.zeros(len(chosen.index)), at_pivots, factor)[1])
        return Scene(np.array(dense), np.array(whitened), *pivots.principal(chosen.basis))

    @property
    def reduced(self) -> Array:
        """The covariances in the principal coordinates."""
        return np.asarray(self.scale @ self.whitened @ self.scale.T)

    def by_pivots(self, tolerance: float) -> Array:
        """Return the barycenter of all points, from the messages."""
        found = bures.barycenter(self.reduced, tolerance=tolerance).covariance
        return np.asarray(self.directions @ found @ self.directions.T)


def square_root(covariance: Array) -> Array:
    """Return the square root of a matrix, by `eigh`."""
    eigenvalues, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(eigenvalues, 0.0))) @ vectors.T)


def judge(covariances: Array, result: Array) -> tuple[float, float]:
    """Return the residual of Eq. 8 and the spread, with equal weights, by the paper's formulas."""
    root = square_root(result)
    roots = np.array([square_root(root @ covariance @ root) for covariance in covariances])
    residual = np.linalg.norm(roots.mean(axis=0) - result) / np.linalg.norm(result)
    traces = np.trace(covariances + result - 2.0 * roots, axis1=1, axis2=2)
    return float(residual), float(traces.mean())


def main() -> None:
    """Print the table."""
    scene = Scene.drawn()
    covariances = scene.dense

    def report(name: str, milli: float, result: Array) -> tuple[float, float]:
        residual, spread = judge(covariances, result)
        print(f"  {name:34s} {milli:9.1f} ms   residual {residual:.1e}   spread {spread:.6f}")
        return residual, spread

    print(
        f"barycenter of {AGENTS} covariances, S = {SIDE**2}, {scene.whitened.shape[1]} pivots, "
        f"{len(scene.scale)} dimensions; least CPU time of {REPEATS}"
    )
    report("ours by pivots, 1e-3", *cpu_ms(lambda: scene.by_pivots(1e-3), REPEATS))
    report("ours by pivots, 1e-6", *cpu_ms(lambda: scene.by_pivots(1e-6), REPEATS))
    report("ours, dense, 1e-6", *cpu_ms(lambda: bures.barycenter(covariances).covariance, REPEATS))
    try:
        import ot
    except ImportError:
        print("  POT is not installed: pip install fbo-flower[bench]")
        return
    for where, problem, lift in (
        ("dense", covariances, np.eye(SIDE**2)),
        ("our coordinates", scene.reduced, scene.directions),
    ):
        their_time, found, how = by_pot(ot, problem)
        print(f"  POT {ot.__version__}, {where}: {how}")
        residual, _ = report("  POT", their_time, lift @ found @ lift.T)
        our_time, ours = cpu_ms(functools.partial(scene.by_pivots, 0.5 * residual), REPEATS)
        reached, _ = report("  ours by pivots, no worse", our_time, ours)
        verdict = f"{their_time / our_time:.0f} times" if reached <= residual else "not comparable"
        print(f"    POT's time over ours: {verdict}")


def by_pot(ot: ModuleType, covariances: Array) -> tuple[float, Array, str]:
    """Return POT's CPU time, covariance, and steps and jitter: the smallest without NaN square roots."""
    steps = [0]
    means, size = np.zeros(covariances.shape[:2]), covariances.shape[1]
    largest = float(np.linalg.eigvalsh(covariances.mean(axis=0))[-1])
    absolute = POT_TOLERANCE * float(np.linalg.norm(covariances.mean(axis=0)))
    for jitter in (0.0, 1e-9, 1e-8, 3e-8, 1e-7, 1e-6, 1e-5):
        problem = covariances + jitter * largest * np.eye(size)

        def theirs(num_iter: int, problem: Array = problem) -> Array:
            with contextlib.redirect_stdout(io.StringIO()):  # it prints when it does not converge
                _, result, log = ot.gaussian.bures_wasserstein_barycenter(
                    means, problem, eps=absolute, num_iter=num_iter, log=True
                )
            steps[0] = 1 + log["num_iter"]
            return np.asarray(result)

        with contextlib.suppress(np.linalg.LinAlgError, ValueError), np.errstate(all="ignore"):
            if np.isfinite(theirs(2)).all():
                elapsed, result = cpu_ms(functools.partial(theirs, 100), 1)
                if np.isfinite(result).all():
                    return elapsed, result, f"{steps[0]} steps, jitter {jitter:.0e} of the largest eigenvalue"
    raise SystemExit("POT: no finite result at any jitter")


if __name__ == "__main__":
    with single_thread():
        main()
