"""Co-KG: agents share posteriors of one black box, the server chooses the next points jointly [Zhan2025].

Round 1 is the warm-up: every agent evaluates some points of its own, and reports the moments of its values
and how likely they are under a grid of hyperparameters. The server adds these log likelihoods, estimates a
prior, and picks pivots, the points at which agents report their posteriors; every later task carries this
shared prior. In round 2 the server has no posteriors yet, so every agent chooses its point by its own
knowledge gradient. From then on the server builds a central model from the reported posteriors and chooses
one point per agent (Alg. 1). An agent whose posterior the server does not have, for instance one that joined
late, chooses its own point. `docs/papers/co_kg.md` maps equations to functions.

[Zhan2025] Zhan, Zhang, Righter, Zheng, Anderson: Collaborative Bayesian optimization via Wasserstein
barycenters, 2025.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from fbo_flower.algorithms.co_kg import central
from fbo_flower.algorithms.co_kg.state import (
    CoKGOptions,
    CoKGState,
    Found,
    SharedPrior,
    WarmUp,
    WhitenedPosterior,
    Work,
)
from fbo_flower.algorithms.messages import Content, Replies
from fbo_flower.algorithms.records import (
    AgentState,
    Array,
    Best,
    Federation,
    Phase,
    Report,
    ServerResults,
    Task,
    Trials,
    floats,
)
from fbo_flower.algorithms.requests import Rng
from fbo_flower.errors import WireError
from fbo_flower.numerics.acquisition.feature_models import pack_symmetric, unpack_symmetric
from fbo_flower.numerics.acquisition.joint_design import own_gain
from fbo_flower.numerics.aggregation.agreement import moments
from fbo_flower.numerics.finite import difference, standardised
from fbo_flower.numerics.linalg import Factor, cholesky
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.surrogates import gp, shared_hyperparameters
from fbo_flower.numerics.surrogates.pivots import Increment, observe, pivot_factor, pool, whiten
from fbo_flower.numerics.surrogates.transforms import expanded

MOST_VALUES = 2**40  # largest number of values in an agent's moments
NOT_DEFINITE = 1e-8  # an eigenvalue below minus this share of the largest variance is no rounding error
DOUBTFUL = 0.01  # level of the test of agreement; divided by the number of agents


@dataclass(frozen=True, kw_only=True)
class CoKG(CoKGOptions):
    """Collaborative knowledge gradient on a Wasserstein barycenter; `CoKGOptions` describes the options."""

    name: ClassVar[str] = "co-kg"
    task_content: ClassVar[type[Content]] = Work
    report_content: ClassVar[type[Content]] = Found
    barrier: ClassVar[str] = ""

    # -- the server's half ---------------------------------------------------------------------

    def init(self, federation: Federation, rng: Generator) -> CoKGState:
        return CoKGState(federation.space)

    def ask(
        self, state: CoKGState, phase: Phase, server_round: int, present: Sequence[str], rng: Generator
    ) -> tuple[CoKGState, dict[str, Task]]:
        if phase is Phase.FINISH:
            return self._ask_for_recommendations(state, server_round, present)
        if phase is not Phase.TRAIN:
            return state, {}
        before = state.renewals
        state, points = central.next_points(self, state, server_round, present, rng)  # Alg. 1, lines 4-6
        if server_round != state.round:  # once per round: without a barrier a round has many calls
            state = self._settle(state, server_round)  # line 2: after the warm-up
        if state.setting is not None and state.renewals > before and self.central != "barycenter":
            setting = central.with_pivots(self, state.space, state.setting, state.refined)
            state = replace(state, setting=replace(setting, version=setting.version + 1), start=None)
        content = Work(fit=True) if state.setting is None else state.setting.work(state.fitting)
        tasks = {}
        for agent in present:
            trial = state.progress.of(agent)
            task = content.task(phase, server_round, trial, self.num_initial if trial == 0 else 1)
            if trial > 0 and agent in points:
                task = replace(task, arrays={**task.arrays, "point": points[agent]})  # line 7
            tasks[agent] = task
        version = 0 if state.setting is None else state.setting.version
        versions = {**state.versions, **dict.fromkeys(tasks, version)}
        return replace(state, round=server_round, versions=versions), tasks

    def tell(self, state: CoKGState, phase: Phase, replies: Replies) -> CoKGState:
        if phase is Phase.FINISH:
            received = {agent: Found.of(report) for agent, report in replies.items()}
            best = {
                a: self._recommended(state, sent) for a, sent in received.items() if sent.best is not None
            }
            return replace(state, finished={**state.finished, **best})
        warm_ups, posteriors, histories = dict(state.warm_ups), dict(state.posteriors), dict(state.histories)
        finished = dict(state.finished)
        for agent, report in replies.items():
            sent = Found.of(report)
            if sent.moments is not None:
                warm_ups[agent] = WarmUp(sent.moments, sent.theta, sent.log_likelihoods)
            if sent.points is not None and sent.outcomes is not None:
                histories[agent] = _extended(histories.get(agent), sent.points, sent.outcomes)
            if sent.best is not None and state.setting is not None:
                finished[agent] = self._recommended(state, sent)
            posterior = self._read_posterior(state, agent, sent)
            if posterior is not None:
                posteriors[agent] = posterior
        if self.secure_sums and replies.sums and (pooled := WarmUp.from_sums(replies.sums)) is not None:
            warm_ups = {"": pooled}
        state = replace(
            state, progress=state.progress.advance(replies), warm_ups=warm_ups, posteriors=posteriors,
            histories=histories, finished=finished,
            last_heard=state.round if replies else state.last_heard,
        )  # fmt: skip
        return central.recommend(self, central.compare(self, state)) if replies else state

    # -- warm-up and setting -------------------------------------------------------------------

    def _settle(self, state: CoKGState, server_round: int) -> CoKGState:
        """Set the shared prior after the warm-up, and renew it after agents have estimated it again."""
        if state.setting is None:
            if not state.warm_ups:
                return state
            setting = central.settle(self, state.space, state.warm_ups, None)
            return replace(state, setting=setting, settled=server_round)
        if state.fitting:  # where the best point is, pooling needs pivots
            added = None if self.central == "barycenter" else state.refined
            setting = central.settle(self, state.space, state.warm_ups, state.setting, added)
            state = replace(state, setting=setting, fitting=False, start=None)
        return replace(state, fitting=self.fits_again(server_round - state.settled))

    def _read_posterior(self, state: CoKGState, agent: str, sent: Found) -> WhitenedPosterior | None:
        """Return the posterior in a report [Zhan2025, Alg. 1, lines 4 and 8]; None if it has none.

        Without a barrier it may be under an earlier shared prior, and is not used then.
        """
        setting = state.setting
        if setting is None or state.versions.get(agent) != setting.version:
            return None
        size = len(setting.pivots)
        if sent.precision is not None and sent.shift is not None:
            increment = Increment(unpack_symmetric(sent.precision, size), sent.shift)
            return WhitenedPosterior(setting.version, state.round, *pool([increment]), increment)
        if sent.covariance is None or sent.mean is None:
            return None
        h, features = setting.hyperparameters, state.space.features(setting.pivots)
        factor = _factor(h.kernel, h.to_array().tobytes(), features.tobytes(), features.shape[1])
        found = whiten(sent.mean, unpack_symmetric(sent.covariance, size), factor)
        return WhitenedPosterior(setting.version, state.round, *found)

    # -- recommendations -----------------------------------------------------------------------

    def _ask_for_recommendations(
        self, state: CoKGState, server_round: int, present: Sequence[str]
    ) -> tuple[CoKGState, dict[str, Task]]:
        """Ask every agent once for the maximiser of its posterior mean [Zhan2025, Alg. 1, line 10]."""
        if state.setting is None or state.asked_to_recommend:
            return state, {}
        content = replace(state.setting.work(), added=state.refined)
        tasks = {
            agent: content.task(Phase.FINISH, server_round, state.progress.of(agent), 0)
            for agent in present
            if state.progress.of(agent) > 0
        }
        finished: dict[str, tuple[Array, float]] = {}
        if state.under_way is not None:
            finished = central.recommend_without_asking(self, state, tasks)
        return replace(state, asked_to_recommend=tuple(tasks), finished=finished), tasks

    def _recommended(self, state: CoKGState, sent: Found) -> tuple[Array, float]:
        """Return the maximiser `(D,)` of an agent's posterior mean, and the mean there, from its report."""
        points = self.points(state.space, state.refined)
        assert sent.best is not None
        assert sent.best_mean is not None
        return points[min(int(sent.best[0]), len(points) - 1)], float(sent.best_mean[0])

    def results(self, state: CoKGState) -> ServerResults | None:
        """Return every agent's recommendation: the maximiser of its posterior mean, and the mean there.

        Under "product" and "data-communication" it is the central model's maximiser for every agent.
        """
        if state.setting is None:
            return None
        maximisers = dict(state.finished)
        if state.recommended and not state.recommended[-1].agent:
            last = state.recommended[-1]
            maximisers = dict.fromkeys(maximisers, (last.point, last.value))
        found = {a: Best(x, math.nan, self.in_units(state.setting, m)) for a, (x, m) in maximisers.items()}
        return ServerResults(recommendations=found, found=self._found(state, state.setting))

    def in_units(self, setting: SharedPrior, value: float) -> float:
        """Return a posterior mean in units of the objective; with a transform, the posterior median."""
        transformed = float(difference(setting.shift, -setting.scale * value))
        return expanded(transformed, self.transform, self.transform_scale)

    def _found(self, state: CoKGState, setting: SharedPrior) -> dict[str, object]:
        """Return the shared prior and the recommendations.

        `recommended` has a row per round: the point that the server would have returned after it
        [Zhan2025, Alg. 1, line 11].
        """
        found: dict[str, object] = {
            "lengthscales": setting.hyperparameters.lengthscales.tolist(),
            "outputscale": setting.hyperparameters.outputscale,
            "noise_variance": setting.hyperparameters.noise_variance,
            "shift": setting.shift,
            "scale": setting.scale,
            "num_pivots": len(setting.pivots),
            "recommended": [
                {
                    "round": best.round,
                    "agent": best.agent,
                    "config": state.space.decode(best.point),
                    "value": self.in_units(setting, best.value),
                }
                for best in state.recommended
            ],
            "agreement": [{"round": number, "p_values": dict(p)} for number, p in state.agreement],
        }
        if state.evidence:
            found["evidence"] = [{"round": number, "log_bayes_factor": b} for number, b in state.evidence]
        return found

    def progress_lines(self, state: CoKGState, before: CoKGState) -> list[str]:
        """Return a log line for every new test of agreement, and every change of "auto"."""
        lines = [
            _agreement(number, p_values) for number, p_values in state.agreement[len(before.agreement) :]
        ]
        if state.evidence:
            (number, value), earlier = state.evidence[-1], before.evidence[-1][1] if before.evidence else 0.0
            if _model(value) != _model(earlier):
                least = f"least log Bayes factor of an agent: {value:.1f}"
                lines.append(f"[round {number}] {_model(value)} ({least})")
        return lines

    # -- the agent's half ----------------------------------------------------------------------

    def propose(self, task: Task, agent_state: AgentState, rng: Rng) -> Trials | None:
        return propose(self, task, agent_state, rng())

    def learn(self, task: Task, agent_state: AgentState, outcome: Trials, rng: Rng) -> AgentState:
        setting = SharedPrior.read(task.arrays, self.kernel)
        agent_state = agent_state.learn(outcome)
        return agent_state if setting is None else agent_state.write(**setting.work().arrays)

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        setting, content, draws = SharedPrior.read(task.arrays, self.kernel), Work.of(task), rng()
        sent = Found()
        if content.fit and (own := warm_up(self, agent_state, setting)) is not None:
            sent = own.to_sums() if self.secure_sums else Found(**vars(own))
        if self.framework == "data-communication" and task.phase is Phase.TRAIN:
            history = agent_state.history  # the first task's trials include those from before the study
            rows = (history.trials < task.end) & ((history.trials >= task.trial) | (task.trial == 0))
            sent = replace(sent, points=history.points[rows], outcomes=history.values[rows])
        if setting is None:
            return sent
        if task.phase is Phase.FINISH or self.framework == "no-collaboration":
            means = means_at(self, agent_state, setting, self.points(agent_state.space, content.added))
            best = int(np.argmax(means))
            return replace(sent, best=np.array([best]), best_mean=means[[best]])
        if self.framework == "data-communication":
            return sent
        believes: Mapping[str, Any] = posterior(self, agent_state, setting, draws).arrays
        return replace(sent, **believes)

    def best(self, agent_state: AgentState, *, own: bool = True) -> Best | None:
        """Return the evaluated point with the best posterior mean; before the warm-up the best trial.

        The server recommends the maximiser on the whole point set, which nobody may have evaluated.
        """
        setting, history = SharedPrior.read(agent_state.arrays, self.kernel), agent_state.history
        usable = np.isfinite(agent_state.usable_values(own=own))
        if setting is None or not usable.any():
            return super().best(agent_state, own=own)
        means = means_at(self, agent_state, setting, history.points)
        row = int(np.argmax(np.where(usable, means, -np.inf)))
        return Best(
            history.points[row], float(history.values[row]), self.in_units(setting, float(means[row]))
        )

    def check_report(self, task: Task, report: Report) -> None:
        """Raise WireError if moments, trials or a posterior in a report are not possible values."""
        check_warm_up(report)
        if ("best" in report.arrays) != ("best_mean" in report.arrays):
            raise WireError("best: expected with best_mean, got one of them alone")
        if "points" in report.arrays or "outcomes" in report.arrays:
            points, values = (report.arrays.get(name, np.empty(0)) for name in ("points", "outcomes"))
            if len(points) != len(values) or np.isinf(floats(values)).any():
                raise WireError(f"points: expected one per value, got {len(points)} and {len(values)}")
        setting = SharedPrior.read(task.arrays, self.kernel)
        if setting is not None:
            check_posterior(report, setting)


def check_warm_up(report: Report) -> None:
    """Raise WireError if moments have no valid count or a negative deviation, or if they are missing."""
    if "moments" in report.arrays:
        number, _, stddev = floats(report.arrays["moments"])
        if not 1 <= number <= MOST_VALUES or number != np.floor(number) or stddev < 0:
            raise WireError(f"moments: expected a count and a deviation >= 0, got {number:g} and {stddev:g}")
    for name in {"theta", "log_likelihoods"} & set(report.arrays):
        if "moments" not in report.arrays:
            raise WireError(f"{name}: expected with moments, got it alone")


def check_posterior(report: Report, setting: SharedPrior) -> None:
    """Raise WireError if a reported covariance or precision has a wrong size or a negative eigenvalue."""
    size, prior = len(setting.pivots), setting.hyperparameters.outputscale
    for matrix, vector in (("precision", "shift"), ("covariance", "mean")):
        if matrix not in report.arrays and vector not in report.arrays:
            continue
        for name, length in ((matrix, size * (size + 1) // 2), (vector, size)):
            if name not in report.arrays or report.arrays[name].shape != (length,):
                got = report.arrays[name].shape if name in report.arrays else "none"
                raise WireError(f"{name}: expected ({length},), got {got}", "shape")
        whole = unpack_symmetric(floats(report.arrays[matrix]), size)
        _check_definite(matrix, whole)
        largest = float(whole.diagonal().max())
        if matrix == "covariance" and largest > prior * (1.0 + NOT_DEFINITE):
            raise WireError(
                f"covariance: expected variances up to the prior's {prior:g}, got {largest:g}", "covariance"
            )


def _check_definite(name: str, matrix: Array) -> None:
    """Raise WireError if a symmetric matrix has an eigenvalue clearly below 0 (tested by one Cholesky)."""
    largest = float(np.abs(matrix.diagonal()).max())
    try:
        np.linalg.cholesky(matrix + max(NOT_DEFINITE * largest, 1e-300) * np.eye(len(matrix)))
    except np.linalg.LinAlgError as error:
        lowest = float(np.linalg.eigvalsh(matrix)[0])
        raise WireError(
            f"{name}: expected positive semi-definite, got an eigenvalue of {lowest:.3g} "
            f"with entries up to {largest:.3g} on the diagonal",
            "covariance",
        ) from error


@lru_cache(maxsize=8)
def _factor(kernel: str, theta: bytes, pivots: bytes, num_features: int) -> Factor:
    points = np.frombuffer(pivots).reshape(-1, num_features)
    return pivot_factor(points, gp.Hyperparameters.from_array(kernel, np.frombuffer(theta)))


def _extended(history: Trials | None, points: Array, values: Array) -> Trials:
    """Return an agent's disclosed trials with those of a report appended."""
    trials = np.arange(len(values), dtype=np.int64)
    if history is None:
        return Trials(points, values, trials)
    return history.concat(Trials(points, values, trials + len(history)))


def _model(log_bayes_factor: float) -> str:
    if log_bayes_factor > central.ENOUGH:
        return "central model: product"
    return "central model: " + (
        "barycenter" if log_bayes_factor >= central.AGAINST else "none, agents differ"
    )


def _agreement(number: int, p_values: Mapping[str, float]) -> str:
    listed = ", ".join(f"{agent}: {p:.2g}" for agent, p in p_values.items())
    odd = [agent for agent, p in p_values.items() if p < DOUBTFUL / len(p_values)]
    advice = ""
    if odd:
        least = min(odd, key=lambda agent: p_values[agent])
        advice = (
            f"; they do not share one objective, least of all agent {least}: use central=barycenter or auto"
        )
    return f"[round {number}] do agents share one objective? p-values {listed}{advice}"


# -- an agent: its warm-up, its posterior at the pivots, its own knowledge gradient --------------------
# Notation as in `state.py`; `x (n, F)`, `y (n,)` are observations as features and standardised values.


def observations(options: CoKGOptions, agent_state: AgentState, setting: SharedPrior) -> tuple[Array, Array]:
    """Return features `(n, F)` and values `(n,)` in the shared units; a failed trial counts as the worst."""
    points, values = agent_state.history.observed()
    transformed = options.transformed(values)
    return agent_state.space.features(points), standardised(transformed, setting.shift, setting.scale)


def propose(
    options: CoKGOptions, task: Task, agent_state: AgentState, rng: np.random.Generator
) -> Trials | None:
    """Return the warm-up as one batch; later the server's point, or without one the agent's own choice."""
    trial = agent_state.next_trial
    if trial >= task.end:
        return None
    space = agent_state.space
    setting = SharedPrior.read(task.arrays, options.kernel)
    if "point" in task.arrays and trial == task.trial:
        return Trials(space.snap(np.asarray(task.arrays["point"], dtype=np.float64)[np.newaxis]))
    if setting is None or trial < options.num_initial:
        return Trials(space.snap(first_points(options, task.end - trial, space.dimension, rng)))
    return Trials(own_choice(options, agent_state, setting, rng)[np.newaxis])


def first_points(options: CoKGOptions, num_points: int, dimension: int, rng: np.random.Generator) -> Array:
    """Return the points of the warm-up, `(n, D)`: Sobol points, the first of which are repeated at the end.

    At least three points differ: two values could be computed from their mean and standard deviation.
    """
    num_repeated = max(min(options.num_repeated, num_points - 3, num_points // 2), 0)
    points = sobol(num_points - num_repeated, dimension, rng)
    return np.concatenate([points, points[:num_repeated]])


def own_choice(
    options: CoKGOptions, agent_state: AgentState, setting: SharedPrior, rng: np.random.Generator
) -> Array:
    """Return the point `(D,)` with the largest acquisition value under the agent's own posterior [Eq. 4]."""
    frame, pivots = setting.frame(options, agent_state.space), agent_state.space.features(setting.pivots)
    x, y = observations(options, agent_state, setting)
    mean, covariance = pool([observe(x, y, pivots, setting.hyperparameters)])
    factor = frame.basis @ cholesky(covariance).lower
    noise = setting.hyperparameters.noise_variance
    gain = own_gain(options.acquisition, frame.basis @ mean, factor, noise, options.num_draws, rng)
    best: Array = frame.points[int(np.argmax(gain))]
    return best


def means_at(options: CoKGOptions, agent_state: AgentState, setting: SharedPrior, points: Array) -> Array:
    """Return the agent's posterior mean `(n,)` at points `(n, D)`."""
    x, y = observations(options, agent_state, setting)
    return gp.posterior(x, y, setting.hyperparameters).mean(agent_state.space.features(points))


# -- an agent: its reports ---------------------------------------------------------------------------


def warm_up(options: CoKGOptions, agent_state: AgentState, setting: SharedPrior | None) -> WarmUp | None:
    """Return moments of the agent's values and log likelihoods of the grid.

    Return None before successes at three points: from mean and standard deviation of two values the server
    could compute both values. The likelihoods are those of values in the shared units, or before these are
    known in units of the agent's own.
    """
    history = agent_state.history
    if len(np.unique(history.points[np.isfinite(history.values)], axis=0)) < 3:
        return None
    points, values = history.observed()
    own = moments(options.transformed(values))
    if not np.isfinite(own).all():
        return None
    if own[2] <= 0.0:
        return WarmUp(own)
    shift, scale = own[1:] if setting is None else (setting.shift, setting.scale)
    y = standardised(options.transformed(values), shift, scale)
    x = agent_state.space.features(points)
    log_likelihoods, theta = shared_hyperparameters.own(
        x, y, options.kernel, scale, isotropic=options.isotropic
    )
    return WarmUp(own, theta, log_likelihoods)


def posterior(
    options: CoKGOptions, agent_state: AgentState, setting: SharedPrior, rng: np.random.Generator
) -> Found:
    """Return mean `(r,)` and packed covariance at the pivots [Zhan2025, Eq. 3].

    With `central = "product"` or "auto" return instead the precision and shift that the observations add to
    the prior. `mean_noise_stddev` adds noise: a scaled draw from the prior, `L e`, to the mean, or
    `(I + Lambda) e` to the shift.
    """
    pivots = agent_state.space.features(setting.pivots)
    x, y = observations(options, agent_state, setting)
    noise = np.zeros(len(pivots))
    if options.mean_noise_stddev > 0.0:
        noise = options.mean_noise_stddev * rng.standard_normal(len(pivots))
    if options.central != "barycenter":
        increment = observe(x, y, pivots, setting.hyperparameters)
        shift = increment.shift + noise + increment.precision @ noise
        return Found(precision=pack_symmetric(increment.precision), shift=shift)
    process = gp.posterior(x, y, setting.hyperparameters)
    mean = process.mean(pivots)
    if options.mean_noise_stddev > 0.0:
        mean = mean + pivot_factor(pivots, setting.hyperparameters).lower @ noise
    return Found(mean=mean, covariance=pack_symmetric(process.covariance(pivots)))
