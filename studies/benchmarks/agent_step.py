"""Measure the parts of one Thompson step, beside a plain SciPy version. Run with `OPENBLAS_NUM_THREADS=1`.

The plain version evaluates the same paths with `np.cos` and polishes the best starts one by one with
`scipy.optimize.minimize`. It fits with scikit-learn, also from a warm start, but without priors and with a
tighter tolerance, so the two fits are only roughly comparable.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.optim.maximise import maximise
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import gp
from fbo_flower.numerics.threads import single_thread

NUM_POINTS, NUM_DIMS, NUM_FEATURES, NUM_CANDIDATES, NUM_STARTS = 50, 2, 256, 512, 4
COLUMNS = np.arange(NUM_DIMS)


def milliseconds(function: Callable[[], object], repeats: int = 200) -> float:
    """Return the mean CPU time of a call."""
    function()
    begin = time.process_time()
    for _ in range(repeats):
        function()
    return 1e3 * (time.process_time() - begin) / repeats


def plain_value_and_gradient(path: gp.SamplePath, z: Array) -> tuple[Array, Array]:
    """Return a path's value and gradient by the formulas of the "rbf" kernel."""
    scales = path.hyperparameters.lengthscales
    angles = z @ path.features.frequencies.T + path.features.phases
    k = np.exp(-0.5 * cdist(z / scales, path.x / scales, "sqeuclidean")) * path.coefficients
    values = np.cos(angles) @ path.weights + k.sum(axis=1)
    gradients = -(np.sin(angles) * path.weights) @ path.features.frequencies
    gradients -= np.einsum("mn,mnf->mf", k, (z[:, None, :] - path.x) / scales**2)
    return values, gradients


def plain_score(path: gp.SamplePath, z: Array) -> Array:
    """Return the values of the candidates."""
    scales = path.hyperparameters.lengthscales
    k = np.exp(-0.5 * cdist(z / scales, path.x / scales, "sqeuclidean"))
    values: Array = np.cos(z @ path.features.frequencies.T + path.features.phases) @ path.weights
    return values + k @ path.coefficients


def plain_maximise(path: gp.SamplePath, candidates: Array) -> float:
    """Return the best result of L-BFGS-B runs from the best candidates, one after the other."""

    def loss(v: Array) -> tuple[float, Array]:
        value, gradient = plain_value_and_gradient(path, v[None])
        return -float(value[0]), -gradient[0]

    starts = candidates[np.argsort(-plain_score(path, candidates))[:NUM_STARTS]]
    bounds = [(0.0, 1.0)] * NUM_DIMS
    return -min(float(minimize(loss, s, jac=True, method="L-BFGS-B", bounds=bounds).fun) for s in starts)


def main() -> None:
    """Print the table."""
    rng = generator(0, "benchmark")
    x = rng.random((NUM_POINTS, NUM_DIMS))
    y = np.sin(6.0 * x[:, 0]) + np.cos(4.0 * x[:, 1]) + 0.05 * rng.standard_normal(NUM_POINTS)
    y = (y - y.mean()) / y.std()
    before = gp.fit(x[:-1], y[:-1], "rbf", rng).hyperparameters
    h = gp.fit(x, y, "rbf", rng, start=before).hyperparameters
    process = gp.posterior(x, y, h)
    candidates = sobol(NUM_CANDIDATES, NUM_DIMS, rng)
    paths = [process.sample_path(NUM_FEATURES, rng) for _ in range(50)]

    def turns(function: Callable[[gp.SamplePath], object]) -> float:
        """Return the mean over paths, because the time of a polish depends on the path."""
        return milliseconds(lambda: [function(path) for path in paths], repeats=4) / len(paths)

    def plain_fit() -> None:
        kernel = ConstantKernel(before.outputscale) * RBF(before.lengthscales)
        kernel += WhiteKernel(before.noise_variance, (1e-6, 2.0))
        GaussianProcessRegressor(kernel, alpha=0.0).fit(x, y)

    score, plain_scoring = turns(lambda path: path(candidates)), turns(lambda p: plain_score(p, candidates))
    whole = turns(lambda path: maximise(path, candidates, COLUMNS, num_starts=NUM_STARTS))
    plain_whole = turns(lambda path: plain_maximise(path, candidates))
    draw = milliseconds(lambda: process.sample_path(NUM_FEATURES, rng))
    rows = [
        ("posterior", milliseconds(lambda: gp.posterior(x, y, h)), None),
        ("Sobol candidates", milliseconds(lambda: sobol(NUM_CANDIDATES, NUM_DIMS, rng)), None),
        ("draw a path", draw, None),
        ("score candidates", score, plain_scoring),
        ("pick and polish", whole - score, plain_whole - plain_scoring),
        ("draw + maximise", draw + whole, draw + plain_whole),
        (
            "fit, warm",
            milliseconds(lambda: gp.fit(x, y, "rbf", rng, start=before), 50),
            milliseconds(plain_fit, 5),
        ),
        ("fit, cold", milliseconds(lambda: gp.fit(x, y, "rbf", rng), 50), None),
    ]
    print(f"n={NUM_POINTS} F={NUM_DIMS} M={NUM_FEATURES} candidates={NUM_CANDIDATES} starts={NUM_STARTS}")
    print(f"{'ms of CPU time':<18}{'here':>8}{'plain':>8}{'ratio':>8}")
    for name, ours, plain in rows:
        beside = "" if plain is None else f"{plain:8.2f}{plain / ours:8.1f}"
        print(f"{name:<18}{ours:8.2f}{beside}")
    found = [maximise(path, candidates, COLUMNS, num_starts=NUM_STARTS).value for path in paths]
    difference = np.array(found) - [plain_maximise(path, candidates) for path in paths]
    print(f"maximum minus plain maximum: mean {difference.mean():.1e}, least {difference.min():.1e}")


if __name__ == "__main__":
    with single_thread():
        main()
