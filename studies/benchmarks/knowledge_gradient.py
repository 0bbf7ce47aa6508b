"""Measure the exact knowledge gradient and the joint maximisation, beside BoTorch's qKG.

    OPENBLAS_NUM_THREADS=1 python -m studies.benchmarks.knowledge_gradient

Four agents with 6 to 34 observations each of a two-dimensional function, RBF kernel of lengthscale .2, on
meshes of 10, 20 and 30 points per axis; the central model is the mean of the agents' means and covariances.
Then 4 to 64 such agents on 20 x 20: time and value of the joint search beside the full one, which moves
agents until no move helps. Full searches are left out beyond 16 agents (32 s at 64) unless `--full` is given.
Then one Gaussian process on all data, 20 x 20: the batch of four that maximises q-KG by our search (beta 0,
64 draws, from covariance to batch) and by BoTorch's `optimize_acqf` of `qKnowledgeGradient` (q = 4, 64
fantasies, the same data, kernel and noise, the continuous square). Both batches are valued by one Monte Carlo
mean of 4096 draws over a 40 x 40 mesh and the points of both. BoTorch (`pip install fbo-flower[bench]`) is
optional.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np

from fbo_flower.numerics.acquisition import batch as batch_search
from fbo_flower.numerics.acquisition.batch import maximise_batch
from fbo_flower.numerics.acquisition.expected_improvement import centred_draws
from fbo_flower.numerics.acquisition.knowledge_gradient import (
    BatchKnowledgeGradient,
    knowledge_gradient_from_factor,
)
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.threads import single_thread
from studies.benchmarks.bench import cpu_ms, mesh, options

NUM_AGENTS, NUM_DRAWS, LENGTHSCALE, NOISE_VARIANCE = 4, 64, 0.2, 0.02
CUT = 1e-5  # relative cut-off of the prior's eigenvalues
OBSERVATIONS = (6, 13, 20, 27, 34)  # observations of each agent, in several rounds of a run


def kernel(a: Array, b: Array) -> Array:
    """Return the RBF kernel of two point sets."""
    squared = np.square(a[:, np.newaxis] - b[np.newaxis]).sum(axis=-1)
    return np.asarray(np.exp(-0.5 * squared / LENGTHSCALE**2))


def objective(x: Array) -> Array:
    """Return the values of a function with two modes, roughly standardised."""
    y = np.square(x).sum(axis=1) + np.sin(2 * np.pi * x[:, 0]) + np.cos(2 * np.pi * x[:, 1])
    return np.asarray((y - 0.67) / 1.1)


def basis(points: Array) -> Array:
    """Return a factor `(S, r)` of the prior covariance, without its small eigenvalues."""
    values, vectors = np.linalg.eigh(kernel(points, points))
    keep = values > CUT * values[-1]
    return np.asarray(vectors[:, keep] * np.sqrt(values[keep]))


def posterior(prior: Array, seen: Array, y: Array) -> tuple[Array, Array]:
    """Return mean and covariance in the basis, given observations at its rows `seen`."""
    covariance = np.linalg.inv(np.eye(prior.shape[1]) + seen.T @ seen / NOISE_VARIANCE)
    return covariance @ seen.T @ y / NOISE_VARIANCE, covariance


def agents(
    points: Array, prior: Array, num_agents: int, count: int, rng: np.random.Generator
) -> tuple[list[tuple[Array, Array]], list[Array], Array, Array]:
    """Return the agents' posteriors, their factors `(S, r)`, and mean and factor of the central model."""
    beliefs = []
    for _ in range(num_agents):
        index = rng.integers(len(points), size=count)
        noise = np.sqrt(NOISE_VARIANCE) * rng.standard_normal(count)
        beliefs.append(posterior(prior, prior[index], objective(points[index]) + noise))
    factors = [prior @ np.linalg.cholesky(covariance) for _, covariance in beliefs]
    mean = np.mean([prior @ m for m, _ in beliefs], axis=0)
    return beliefs, factors, mean, prior @ np.linalg.cholesky(np.mean([c for _, c in beliefs], axis=0))


def own_gains(prior: Array, beliefs: list[tuple[Array, Array]], factors: list[Array]) -> Array:
    """Return the exact knowledge gradient of every agent at every point, `(N, S)`."""
    pairs = zip(beliefs, factors, strict=True)
    return np.array([knowledge_gradient_from_factor(prior @ m, f, NOISE_VARIANCE) for (m, _), f in pairs])


def joint_search(
    mean: Array, factor: Array, draws: Array, gains: Array, beta: float, starts: int, seed: Any = 0
) -> Any:
    """Return the batch that maximises the central acquisition plus `beta` times the agents' own."""
    acquisition = BatchKnowledgeGradient(mean, factor, NOISE_VARIANCE, draws)
    return maximise_batch(acquisition, gains, beta, starts, np.random.default_rng(seed))


def our_batch(points: Array, x: Array, y: Array, rng: np.random.Generator) -> Array:
    """Return the batch of four that our search finds, from the data of one Gaussian process."""
    prior = basis(np.concatenate([points, x]))
    weight, covariance = posterior(prior, prior[len(points) :], y)
    on_mesh = prior[: len(points)]
    draws = centred_draws(NUM_DRAWS, NUM_AGENTS, rng)
    nothing = np.zeros((NUM_AGENTS, len(points)))
    factor = on_mesh @ np.linalg.cholesky(covariance)
    return np.asarray(points[joint_search(on_mesh @ weight, factor, draws, nothing, 0.0, 2, rng).index])


def botorch_batch(x: Array, y: Array, seed: int, restarts: int = 10, raw: int = 512) -> Array:
    """Return the batch of four that BoTorch finds on the same data."""
    import torch
    from botorch.acquisition import PosteriorMean, qKnowledgeGradient
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.kernels import RBFKernel
    from gpytorch.means import ZeroMean

    torch.manual_seed(seed)
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


def many_agents(full: bool) -> None:
    """Print time and value of the joint search by the number of agents, beside the full search."""
    print("\njoint search on 20 x 20, CPU s; values by 2048 other draws, share of the full search's value")
    print(f"{'agents':>6} {'data':>5} {'beta':>5} {'s':>7} {'full s':>7} {'value':>9} {'share':>6}")
    points = mesh(20)
    prior, few = basis(points), batch_search.FEW
    for num_agents in (4, 16, 64):
        for count, beta in ((6, 2.0), (20, 2.0), (6, 0.0), (20, 0.0)):
            rng = np.random.default_rng([num_agents, count])
            beliefs, factors, mean, factor = agents(points, prior, num_agents, count, rng)
            own = own_gains(prior, beliefs, factors)
            draws = centred_draws(NUM_DRAWS, num_agents, rng)
            judge = BatchKnowledgeGradient(
                mean, factor, NOISE_VARIANCE, centred_draws(2048, num_agents, np.random.default_rng(7))
            )
            times, values = [], []
            for limit in (few, num_agents) if full or num_agents <= 16 else (few,):
                batch_search.FEW = limit
                begin = time.process_time()
                acquisition = BatchKnowledgeGradient(mean, factor, NOISE_VARIANCE, draws)
                found = maximise_batch(acquisition, own, beta, 1, rng).index
                times.append(time.process_time() - begin)
                central = judge.values(found, num_agents - 1, found[-1:])[0]
                values.append(central + beta * own[np.arange(num_agents), found].sum())
            batch_search.FEW = few
            spent, share = (f"{times[1]:.3f}", f"{values[0] / values[1]:.3f}") if times[1:] else ("-", "-")
            print(
                f"{num_agents:>6} {count:>5} {beta:>5} {times[0]:>7.3f} {spent:>7} "
                f"{values[0]:>9.4f} {share:>6}"
            )


def own_times() -> None:
    """Print the table of our own times."""
    print(
        f"N = {NUM_AGENTS}, M = {NUM_DRAWS}, lengthscale {LENGTHSCALE}, cut {CUT:g}; CPU ms, mean over a run"
    )
    print(f"{'mesh':>8} {'rank':>5} {'exact KG':>9} {'joint, beta 1.5':>16} {'joint, beta 0, 2 starts':>24}")
    for per_axis in (10, 20, 30):
        points = mesh(per_axis)
        prior = basis(points)
        rows = []
        for count in OBSERVATIONS:
            rng = np.random.default_rng(count)
            beliefs, factors, mean, factor = agents(points, prior, NUM_AGENTS, count, rng)
            draws = centred_draws(NUM_DRAWS, NUM_AGENTS, rng)
            local = partial(own_gains, prior, beliefs, factors)
            joint = partial(joint_search, mean, factor, draws, local())
            works = local, partial(joint, 1.5, 1), partial(joint, 0.0, 2)
            rows.append([cpu_ms(work, 7, np.median)[0] for work in works])
        one, two, three = np.mean(rows, axis=0)
        print(f"{per_axis:>4}x{per_axis:<3} {prior.shape[1]:>5} {one:>9.1f} {two:>16.1f} {three:>24.1f}")


def beside_botorch(seeds: int = 3) -> None:
    """Print times and values of both searches, and their ratios."""
    try:
        import botorch  # noqa: F401
        import torch
    except ImportError:
        print("BoTorch is not installed: its columns are left out (pip install fbo-flower[bench])")
        return
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    print("\nq = 4 on one Gaussian process, 64 draws or fantasies; CPU s and value of the batch")
    print(
        f"{'data':>5} {'ours s':>8} {'BoTorch s':>10} {'ratio':>7} "
        f"{'our value':>10} {'BoTorch':>9} {'ratio':>6}"
    )
    points, fine = mesh(20), mesh(40)
    for count, seed in [(count, seed) for count in (20, 60) for seed in range(seeds)]:
        rng = np.random.default_rng([count, seed])
        x = rng.random((count, 2))
        y = objective(x) + np.sqrt(NOISE_VARIANCE) * rng.standard_normal(count)

        ours_ms, ours = cpu_ms(partial(our_batch, points, x, y, rng), 1)
        peers_ms, peers = cpu_ms(partial(botorch_batch, x, y, seed), 1)
        judged = np.concatenate([ours, peers, fine])
        gram = np.linalg.cholesky(kernel(x, x) + NOISE_VARIANCE * np.eye(count))
        seen = np.linalg.solve(gram, kernel(x, judged))
        mean = seen.T @ np.linalg.solve(gram, y)
        values, vectors = np.linalg.eigh(kernel(judged, judged) - seen.T @ seen)
        factor = vectors[:, values > 1e-9] * np.sqrt(values[values > 1e-9])
        judge = BatchKnowledgeGradient(
            mean, factor, NOISE_VARIANCE, centred_draws(4096, NUM_AGENTS, np.random.default_rng(7))
        )
        first, second = np.arange(4), np.arange(4, 8)
        our_value = judge.values(first, 0, first[:1])[0]
        peer_value = judge.values(second, 0, second[:1])[0]
        print(
            f"{count:>5} {ours_ms / 1e3:>8.3f} {peers_ms / 1e3:>10.2f} {peers_ms / ours_ms:>7.0f} "
            f"{our_value:>10.4f} {peer_value:>9.4f} {our_value / peer_value:>6.3f}"
        )


if __name__ == "__main__":
    asked = options(__doc__, full=False)  # also the full search of 64 agents
    with single_thread():
        own_times()
        many_agents(asked.full)
        beside_botorch()
