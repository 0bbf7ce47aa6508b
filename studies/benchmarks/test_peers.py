"""Compare parts that other libraries also have with these libraries, by pytest-benchmark.

    pytest studies/benchmarks/test_peers.py --benchmark-timer=time.process_time

Each group is one piece of work. A library that is not installed is skipped by name
(`pip install fbo-flower[bench]`). All use one thread. `knowledge_gradient.py`, `barycenter.py` and
`bandits.py` also compare the results.
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fbo_flower.numerics.aggregation import bures
from fbo_flower.numerics.bandits import hct, partition
from fbo_flower.numerics.optim.functions import sample_paths
from fbo_flower.numerics.optim.maximise import maximise
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import fitting
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation.problems import Himmelblau
from studies.benchmarks import bandits
from studies.benchmarks import barycenter as bary
from studies.benchmarks import knowledge_gradient as kg
from studies.benchmarks.bench import mesh
from studies.papers.pne.reference import pull_many

pytest.importorskip("pytest_benchmark")

QUICK = bool(os.environ.get("FBO_BENCH_QUICK"))
ROUNDS = 3 if QUICK else 10
PULLS = 1000 if QUICK else 4000
NUM_POINTS = 50


def measure(
    benchmark: Any, who: str, work: Callable[[int], object], rounds: int = ROUNDS, warm: bool = True
) -> None:
    """Measure `work(0)`, `work(1)`, ...; with `warm`, after one call that is not counted."""
    benchmark.extra_info["who"] = who
    numbers = iter(range(rounds))
    with single_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if warm:
            work(0)
        benchmark.pedantic(work, setup=lambda: ((next(numbers),), {}), rounds=rounds, iterations=1)


def peer(name: str) -> Any:
    """Import a library with one thread; skip the test and name the library if it is not installed."""
    module = pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)
    with contextlib.suppress(ImportError):
        import torch

        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
    return module


# -- one proposal from 50 observations in two dimensions ---------------------------------------


def observations(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points `(n, 2)` and values `(n,)`."""
    rng = np.random.default_rng(seed)
    x = rng.random((NUM_POINTS, 2))
    return x, kg.objective(x) + 0.1 * rng.standard_normal(NUM_POINTS)


@pytest.mark.benchmark(group="Thompson sampling: fit, draw, maximise; 50 points")
def test_thompson_ours(benchmark: Any) -> None:
    def work(number: int) -> object:
        x, y = observations(number)
        y, rng = (y - y.mean()) / y.std(), generator(number, "peer")
        fitted = fitting.fit_one(x, y, "rbf")
        (path,) = sample_paths(x[None], y[None], [fitted], 256, [rng])
        return maximise([path], sobol(512, 2, rng)[None], np.arange(2), num_starts=4)

    measure(benchmark, "fbo-flower", work)


@pytest.mark.benchmark(group="Thompson sampling: fit, draw, maximise; 50 points")
def test_thompson_botorch(benchmark: Any) -> None:
    peer("botorch")
    import torch
    from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    def work(number: int) -> object:
        torch.manual_seed(number)
        x, y = observations(number)
        model = SingleTaskGP(torch.tensor(x), torch.tensor((y - y.mean()) / y.std())[:, None])
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        square = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        path = PathwiseThompsonSampling(model)
        return optimize_acqf(path, bounds=square, q=1, num_restarts=4, raw_samples=512)

    measure(benchmark, "BoTorch", work)


@pytest.mark.benchmark(group="Thompson sampling: fit, draw, maximise; 50 points")
@pytest.mark.parametrize("sampler", ["TPESampler", "GPSampler"])
def test_suggest_optuna(benchmark: Any, sampler: str) -> None:
    optuna = peer("optuna")
    if sampler == "GPSampler":
        peer("torch")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    axes = {f"x{i}": optuna.distributions.FloatDistribution(0.0, 1.0) for i in range(2)}

    def work(number: int) -> object:
        made = getattr(optuna.samplers, sampler)(seed=number, n_startup_trials=0)
        study = optuna.create_study(direction="maximize", sampler=made)
        for x, y in zip(*observations(number), strict=True):
            params = {f"x{i}": float(x[i]) for i in range(2)}
            study.add_trial(optuna.create_trial(params=params, distributions=axes, value=float(y)))
        return study.ask(axes)

    measure(benchmark, f"Optuna {sampler}", work)


@pytest.mark.benchmark(group="Thompson sampling: fit, draw, maximise; 50 points")
def test_suggest_scikit_optimize(benchmark: Any) -> None:
    skopt = peer("skopt")

    def work(number: int) -> object:
        optimizer = skopt.Optimizer([(0.0, 1.0)] * 2, "GP", n_initial_points=1, random_state=number)
        x, y = observations(number)
        optimizer.tell(x.tolist(), (-y).tolist())
        return optimizer.ask()

    measure(benchmark, "scikit-optimize", work, 3)


@pytest.mark.benchmark(group="Thompson sampling: fit, draw, maximise; 50 points")
def test_suggest_bayesian_optimization(benchmark: Any) -> None:
    bayes_opt = peer("bayes_opt")

    def work(number: int) -> object:
        made = bayes_opt.BayesianOptimization(
            f=None, pbounds={"x0": (0, 1), "x1": (0, 1)}, random_state=number, verbose=0,
            allow_duplicate_points=True,
        )  # fmt: skip
        for x, y in zip(*observations(number), strict=True):
            made.register(params={"x0": x[0], "x1": x[1]}, target=float(y))
        return made.suggest()

    measure(benchmark, "bayesian-optimization", work, 3)


# -- HCT ---------------------------------------------------------------------------------------


@pytest.mark.benchmark(group=f"HCT: {PULLS} pulls of Himmelblau, the same ones")
@pytest.mark.parametrize("who", ["fbo-flower", "PyXAB"])
def test_hct(benchmark: Any, who: str) -> None:
    problem = Himmelblau(1, 0)
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, PULLS)
    if who == "PyXAB":
        peer("PyXAB")
        bandits.pyxab_hct(problem.dimension)

        def theirs(number: int) -> object:
            with contextlib.redirect_stdout(io.StringIO()):
                return bandits.peer_microseconds(bandits.pyxab_hct(problem.dimension), problem, noise)

        measure(benchmark, who, theirs, 3)
        return

    def value(depth: int, index: int) -> float:
        return float(problem.values(partition.centre(depth, [index], problem.dimension), 0)[0])

    def work(number: int) -> object:
        return pull_many(hct.Tree(hct.HCTOptions(problem.dimension)), len(noise), value, noise)

    measure(benchmark, who, work, 3)


# -- the barycenter of ten posteriors ----------------------------------------------------------


@pytest.mark.benchmark(group="Wasserstein barycenter: 10 posteriors on 400 points")
@pytest.mark.parametrize("who", ["fbo-flower, from pivots", "fbo-flower, dense", "POT"])
def test_barycenter(benchmark: Any, who: str) -> None:
    scene = bary.Scene.drawn()
    covariances = scene.dense
    if who == "POT":
        ot = peer("ot")
        largest = float(np.linalg.eigvalsh(covariances.mean(axis=0))[-1])
        eps = bary.POT_TOLERANCE * float(np.linalg.norm(covariances.mean(axis=0)))
        means = np.zeros(covariances.shape[:2])

        def theirs(number: int) -> object:  # the jitter with which its square roots are not NaN
            problem = covariances + 1e-7 * largest * np.eye(bary.SIDE**2)
            with contextlib.redirect_stdout(io.StringIO()):
                found = ot.gaussian.bures_wasserstein_barycenter(means, problem, eps=eps, num_iter=100)
            assert np.isfinite(found[1]).all()
            return found

        measure(benchmark, who, theirs, 1, warm=False)
    elif "dense" in who:
        measure(benchmark, who, lambda number: bures.barycenter(covariances, tolerance=1e-6), 3)
    else:
        measure(benchmark, who, lambda number: scene.by_pivots(1e-6), 3)


# -- the joint knowledge gradient --------------------------------------------------------------


@pytest.mark.benchmark(group="q-knowledge gradient, q = 4, 20 observations")
def test_joint_knowledge_gradient_ours(benchmark: Any) -> None:
    def work(number: int) -> object:
        x, y = observations(number)
        return kg.our_batch(mesh(20), x[:20], y[:20], np.random.default_rng(number))

    measure(benchmark, "fbo-flower", work, 3)


@pytest.mark.benchmark(group="q-knowledge gradient, q = 4, 20 observations")
def test_joint_knowledge_gradient_botorch(benchmark: Any) -> None:
    peer("botorch")

    def work(number: int) -> object:
        x, y = observations(number)
        return kg.botorch_batch(x[:20], y[:20], number, *((2, 64) if QUICK else (10, 512)))

    measure(benchmark, "BoTorch", work, 1, warm=False)
