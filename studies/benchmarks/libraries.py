"""Parts that other libraries have too, beside these libraries: CPU milliseconds on one thread.

    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.speed libraries [--quick]

Each group is one piece of work. A library that is not installed (`pip install fbo-flower[bench]`) is left
out, and named.

- PyXAB's binary partition splits a random axis. Here it gets our partition, and an `expand` that keeps
  subtrees, so that both make the same pulls; a difference in regret is an error.
- Barycenter: 20 x 20 points, "rbf" with lengthscale .2, noise variance .02, 20 observations for each of ten
  agents. Ours starts from the messages (mean and covariance at the pivots), or from dense covariances, like
  POT's. POT takes square roots of eigenvalues that rounding has made negative, so it gets a jitter.
- Knowledge gradient: the batch of four that maximises q-KG on one Gaussian process (64 draws or fantasies,
  the same data, kernel and noise), on a mesh of 20 x 20, and by BoTorch in the continuous square.
"""

from __future__ import annotations

import contextlib
import copy
import io
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fbo_flower.numerics.acquisition.batch import maximise_batch
from fbo_flower.numerics.acquisition.expected_improvement import centred_draws
from fbo_flower.numerics.acquisition.knowledge_gradient import BatchKnowledgeGradient
from fbo_flower.numerics.aggregation import bures
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.bandits import hct, partition
from fbo_flower.numerics.optim.functions import sample_paths
from fbo_flower.numerics.optim.maximise import maximise
from fbo_flower.numerics.optim.sobol import mesh, sobol
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import fitting, gp, pivots
from fbo_flower.numerics.threads import single_thread
from fbo_flower.simulation.problems import Himmelblau
from studies.papers.local_peers import fitted_process
from studies.papers.pne.reference import pull_many

NUM_POINTS = 50
NUM_AGENTS, NUM_DRAWS, LENGTHSCALE, NOISE_VARIANCE = 4, 64, 0.2, 0.02
CUT = 1e-5  # relative cut-off of the prior's eigenvalues
AGENTS, SIDE, OBSERVATIONS = 10, 20, 20
MEMORY = 2**28  # bytes of a covariance
HYPERPARAMETERS = gp.Hyperparameters("rbf", np.array([0.2, 0.2]), 1.0, 0.02)
POT_TOLERANCE = 1e-5  # relative to the covariance; POT's own is absolute
Work = Callable[[int], object]  # of a repetition


def measure(quick: bool) -> list[dict[str, Any]]:
    """Return group, library and mean CPU milliseconds of each work; prints libraries that are missing."""
    found = []
    for group, make in groups(quick).items():
        for who, (repeats, work) in make.items():
            try:
                with single_thread(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                    warnings.simplefilter("ignore")
                    if repeats > 1:
                        work(0)  # imports and fills caches before the measurement
                    times = []
                    for number in range(repeats):
                        begin = time.process_time()
                        work(number)
                        times.append(1e3 * (time.process_time() - begin))
            except ImportError as error:
                print(f"# {who} is left out: {error}", flush=True)
                continue
            found.append({"group": group, "who": who, "ms": float(np.mean(times))})
    return found


def groups(quick: bool) -> dict[str, dict[str, tuple[int, Work]]]:
    """Return group -> library -> number of repetitions and the work."""
    some, few, pulls = (2, 1, 500) if quick else (10, 3, 4000)
    dense, by_pivots = posteriors()
    effort = (2, 64) if quick else (10, 512)
    return {
        "Thompson sampling: fit, draw, maximise; 50 points": {
            "fbo-flower": (some, thompson),
            "Optuna TPESampler": (some, partial(optuna_suggests, "TPESampler")),
            "Optuna GPSampler": (some, partial(optuna_suggests, "GPSampler")),
            "bayesian-optimization": (few, bayesian_optimization),
            "BoTorch": (some, botorch_thompson),
            "scikit-optimize": (few, scikit_optimize),
        },
        f"HCT: {pulls} pulls of Himmelblau, the same ones": {
            "fbo-flower": (few, partial(hct_regret, pulls, True)),
            "PyXAB": (few, partial(hct_regret, pulls, False)),
        },
        "Wasserstein barycenter: 10 posteriors on 400 points": {
            "fbo-flower, from pivots": (few, by_pivots),
            "fbo-flower, dense": (few, lambda number: bures.barycenter(dense, tolerance=1e-6)),
            **({} if quick else {"POT": (1, partial(pot_barycenter, dense))}),
        },
        "q-knowledge gradient, q = 4, 20 observations": {
            "fbo-flower": (few, our_gradient),
            "BoTorch": (1, partial(botorch_gradient, *effort)),
        },
    }


# -- one proposal from 50 observations in two dimensions ---------------------------------------


def observations(seed: int) -> tuple[Array, Array]:
    """Return points `(n, 2)` and values `(n,)`."""
    rng = np.random.default_rng(seed)
    x = rng.random((NUM_POINTS, 2))
    return x, objective(x) + 0.1 * rng.standard_normal(NUM_POINTS)


def objective(x: Array) -> Array:
    """Return the values of a function with two modes, roughly standardised."""
    y = np.square(x).sum(axis=1) + np.sin(2 * np.pi * x[:, 0]) + np.cos(2 * np.pi * x[:, 1])
    return np.asarray((y - 0.67) / 1.1)


def thompson(number: int) -> object:
    """Fit, draw and maximise with our own parts."""
    x, y = observations(number)
    y, rng = (y - y.mean()) / y.std(), generator(number, "peer")
    fitted = fitting.fit_one(x, y, "rbf")
    (path,) = sample_paths(x[None], y[None], [fitted], 256, [rng])
    return maximise([path], sobol(512, 2, rng)[None], np.arange(2))


def torch_with_one_thread(seed: int) -> Any:
    """Return the module torch."""
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(seed)
    return torch


def botorch_thompson(number: int) -> object:
    """Do the same with BoTorch."""
    torch = torch_with_one_thread(number)
    from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
    from botorch.optim import optimize_acqf

    x, y = observations(number)
    model = fitted_process(x, (y - y.mean()) / y.std())
    square = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    return optimize_acqf(PathwiseThompsonSampling(model), bounds=square, q=1, num_restarts=4, raw_samples=512)


def optuna_suggests(sampler: str, number: int) -> object:
    """Return a suggestion of one of Optuna's samplers after the same observations."""
    import optuna

    if sampler == "GPSampler":
        torch_with_one_thread(number)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    axes = {f"x{i}": optuna.distributions.FloatDistribution(0.0, 1.0) for i in range(2)}
    made = getattr(optuna.samplers, sampler)(seed=number, n_startup_trials=0)
    study = optuna.create_study(direction="maximize", sampler=made)
    for x, y in zip(*observations(number), strict=True):
        params = {f"x{i}": float(x[i]) for i in range(2)}
        study.add_trial(optuna.create_trial(params=params, distributions=axes, value=float(y)))
    return study.ask(axes)


def scikit_optimize(number: int) -> object:
    """Return a suggestion of scikit-optimize after the same observations."""
    import skopt

    optimizer = skopt.Optimizer([(0.0, 1.0)] * 2, "GP", n_initial_points=1, random_state=number)
    x, y = observations(number)
    optimizer.tell(x.tolist(), (-y).tolist())
    return optimizer.ask()


def bayesian_optimization(number: int) -> object:
    """Return a suggestion of bayesian-optimization after the same observations."""
    import bayes_opt

    made = bayes_opt.BayesianOptimization(
        f=None, pbounds={"x0": (0, 1), "x1": (0, 1)}, random_state=number, verbose=0,
        allow_duplicate_points=True,
    )  # fmt: skip
    for x, y in zip(*observations(number), strict=True):
        made.register(params={"x0": x[0], "x1": x[1]}, target=float(y))
    return made.suggest()


# -- HCT ---------------------------------------------------------------------------------------


def hct_regret(pulls: int, ours: bool, number: int) -> float:
    """Pull Himmelblau with HCT; return the regret, which is the same for both libraries."""
    problem = Himmelblau(1, 0)
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, pulls)
    known: dict[tuple[float, ...], float] = {}

    def value(point: Array) -> float:
        key = tuple(point)
        if key not in known:
            known[key] = float(problem.values(np.array([point]), 0)[0])
        return known[key]

    if ours:
        tree = hct.Tree(hct.HCTOptions(problem.dimension))
        place = lambda depth, index: partition.centre(depth, [index], problem.dimension)[0]  # noqa: E731
        cells = pull_many(tree, pulls, lambda depth, index: value(place(depth, index)), noise)
        values = np.array([value(place(h, i)) for h, i in zip(tree.depth, tree.index, strict=True)])[cells]
    else:
        algorithm, values = pyxab_hct(problem.dimension), np.empty(pulls)
        for t, e in enumerate(noise.tolist()):
            values[t] = value(algorithm.pull(t + 1))
            algorithm.receive_reward(t + 1, values[t] + e)
    return float((problem.optimum(0) - values).sum())


def pyxab_hct(dim: int) -> Any:
    """Return PyXAB's HCT on our partition, expanding leaves only."""
    from PyXAB.algos.HCT import HCT  # type: ignore[import-not-found]  # optional, without types
    from PyXAB.partition.BinaryPartition import BinaryPartition  # type: ignore[import-not-found]

    class CyclicPartition(BinaryPartition):  # type: ignore[misc]  # PyXAB has no types
        def make_children(self, parent: Any, newlayer: bool = False) -> None:
            axis = parent.get_depth() % dim
            children = []
            for j in (0, 1):
                domain = copy.deepcopy(parent.get_domain())
                low, high = domain[axis]
                domain[axis] = [(low + high) / 2, high] if j else [low, (low + high) / 2]
                depth, index = parent.get_depth() + 1, 2 * parent.get_index() - 1 + j
                children.append(self.node(depth=depth, index=index, parent=parent, domain=domain))
            parent.update_children(children)
            if newlayer:
                self.node_list.append(list(children))  # a copy, because it grows
                self.depth += 1
            else:
                self.node_list[parent.get_depth() + 1] += children

    class LeafOnlyHCT(HCT):  # type: ignore[misc]  # PyXAB has no types
        def expand(self, parent: Any) -> None:
            if parent.get_children() is None:
                super().expand(parent)

    return LeafOnlyHCT(domain=[[0, 1]] * dim, partition=CyclicPartition)


# -- the barycenter of ten posteriors ----------------------------------------------------------


def posteriors() -> tuple[Array, Work]:
    """Return the dense posterior covariances of agents with random observations, and our work on pivots."""
    points, rng = mesh(SIDE, 2, MEMORY), np.random.default_rng(0)
    chosen = pivots.choose_pivots(points, HYPERPARAMETERS, 1e-8)
    factor = pivots.pivot_factor(points[chosen.index], HYPERPARAMETERS)
    directions, scale = pivots.principal(chosen.basis)
    dense, whitened = [], []
    for _ in range(AGENTS):
        x = points[rng.integers(0, len(points), OBSERVATIONS)]
        known = gp.posterior(x, np.zeros(len(x)), HYPERPARAMETERS)
        dense.append(known.covariance(points))
        at_pivots = known.covariance(points[chosen.index])
        whitened.append(pivots.whiten(np.zeros(len(chosen.index)), at_pivots, factor)[1])

    def by_pivots(number: int) -> object:
        found = bures.barycenter(scale @ np.array(whitened) @ scale.T, tolerance=1e-6).covariance
        return directions @ found @ directions.T

    return np.array(dense), by_pivots


def pot_barycenter(covariances: Array, number: int) -> object:
    """Return POT's barycenter, with the jitter with which its square roots are not NaN."""
    import ot

    largest = float(np.linalg.eigvalsh(covariances.mean(axis=0))[-1])
    eps = POT_TOLERANCE * float(np.linalg.norm(covariances.mean(axis=0)))
    means, problem = np.zeros(covariances.shape[:2]), covariances + 1e-7 * largest * np.eye(SIDE**2)
    found = ot.gaussian.bures_wasserstein_barycenter(means, problem, eps=eps, num_iter=100)
    assert np.isfinite(found[1]).all()
    return found


# -- the joint knowledge gradient --------------------------------------------------------------


def basis(points: Array) -> Array:
    """Return a factor `(S, r)` of the prior covariance, without its small eigenvalues."""
    values, vectors = np.linalg.eigh(gp.kernel("rbf", points, points, np.full(2, LENGTHSCALE)))
    keep = values > CUT * values[-1]
    return np.asarray(vectors[:, keep] * np.sqrt(values[keep]))


def posterior(prior: Array, seen: Array, y: Array) -> tuple[Array, Array]:
    """Return mean and covariance in the basis, given observations at its rows `seen`."""
    covariance = np.linalg.inv(np.eye(prior.shape[1]) + seen.T @ seen / NOISE_VARIANCE)
    return covariance @ seen.T @ y / NOISE_VARIANCE, covariance


def our_gradient(number: int) -> Array:
    """Return the batch of four that our search finds, from the data of one Gaussian process."""
    (x, y), rng, points = observations(number), np.random.default_rng(number), mesh(20, 2, MEMORY)
    x, y = x[:20], y[:20]
    prior = basis(np.concatenate([points, x]))
    weight, covariance = posterior(prior, prior[len(points) :], y)
    on_mesh, draws = prior[: len(points)], centred_draws(NUM_DRAWS, NUM_AGENTS, rng)
    factor = on_mesh @ np.linalg.cholesky(covariance)
    acquisition = BatchKnowledgeGradient(on_mesh @ weight, factor, NOISE_VARIANCE, draws)
    nothing = np.zeros((NUM_AGENTS, len(points)))
    return np.asarray(points[maximise_batch(acquisition, nothing, 0.0, 2, rng)[0]])


def botorch_gradient(restarts: int, raw: int, number: int) -> Array:
    """Return the batch of four that BoTorch finds on the same data."""
    torch = torch_with_one_thread(number)
    from botorch.acquisition import PosteriorMean, qKnowledgeGradient
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.kernels import RBFKernel
    from gpytorch.means import ZeroMean

    x, y = observations(number)
    x, y = x[:20], y[:20]
    prior_kernel = RBFKernel(ard_num_dims=2)
    prior_kernel.lengthscale = LENGTHSCALE
    model = SingleTaskGP(
        torch.tensor(x),
        torch.tensor(y)[:, None],
        train_Yvar=torch.full((len(y), 1), NOISE_VARIANCE),
        covar_module=prior_kernel,
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    model.eval()
    effort: dict[str, Any] = {"bounds": torch.tensor([[0.0, 0.0], [1.0, 1.0]])}
    effort |= {"num_restarts": restarts, "raw_samples": raw}
    _, current = optimize_acqf(PosteriorMean(model), q=1, **effort)
    gain = qKnowledgeGradient(model, num_fantasies=NUM_DRAWS, current_value=current)
    return np.asarray(optimize_acqf(gain, q=NUM_AGENTS, **effort)[0].numpy())
