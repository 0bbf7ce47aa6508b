"""The state of RFMS's server, and its methods: what each minimises, proposes next and ships [Sec. 4.2].

Notation [Sun2019]: `phi` a configuration, `theta` the model that the openbox trained with it, `J_l` its
cross-validated loss at the openbox, `J_i` its loss at curator `i` with `n_i` rows, and
`J_r = sum n_i J_i / sum n_i` over the curators that answered. Losses are minimised.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fbo_flower.algorithms.records import AnyArray, Array, Report, Scalar
from fbo_flower.algorithms.search import maximise
from fbo_flower.errors import WireError
from fbo_flower.numerics.acquisition import proposals
from fbo_flower.numerics.acquisition.hypervolume import non_dominated
from fbo_flower.numerics.arrays import BoolArray
from fbo_flower.space.space import SearchSpace

MAX_ROWS = 10**9
MAX_LOSS = 1e12
MAX_REASON = 300  # characters
# prefixes of reasons that contain nothing about the data; only such reasons are sent
REFUSED, WITHHELD = "refused: ", "withheld: "
SETUP = f"{REFUSED}setup: "  # prefix of a refusal that no other configuration can avoid


@dataclass(frozen=True)
class SiteReply:
    """A site's answer on one model: its loss on `num_rows` rows, or the reason why there is none.

    `epsilon` is the privacy that the site has spent on its rows so far, 0 if it adds no noise.
    """

    loss: float
    num_rows: int
    failure: str = ""
    epsilon: float = 0.0

    @property
    def withheld(self) -> bool:
        """Whether the site refuses to answer for any model, for instance because its budget is spent."""
        return self.failure.startswith(WITHHELD)


@dataclass(frozen=True)
class ModelTrial:
    """One configuration: the round in which it was asked for, its point `(D,)`, and `J_l`."""

    round: int
    point: Array
    local: SiteReply


@dataclass(frozen=True)
class RFMSState:
    """The server's state."""

    space: SearchSpace
    openbox: str
    curators: tuple[str, ...]
    lockboxes: tuple[str, ...]
    design: Array  # `(n, D)`, configurations drawn at the start
    trials: tuple[ModelTrial, ...] = ()  # finished configurations; the index is the trial id
    # trial -> curator -> its answer on its inbag rows
    replies: Mapping[int, Mapping[str, SiteReply]] = field(default_factory=dict)
    asked: tuple[str, ...] = ()  # curators that were asked in this half-round
    # curator -> trials that it was asked for and did not answer, since its last reply
    owed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # trial -> packed model; dominated ones are dropped
    models: Mapping[int, AnyArray] = field(default_factory=dict)
    point: Array | None = None  # `(D,)`, configuration that the openbox is asked for; None: none
    unjudged: int | None = None  # trial whose model no curator has judged yet; None: none
    round: int = 0  # last round in which the openbox was asked
    attempts: int = 0  # how often the sites were asked for `point` or `unjudged`
    final: tuple[int, ...] | None = None  # trials whose models are judged at the end; None before the end
    final_step: int = 0  # number of exchanges of the phase FINISH so far
    # trial -> site -> its answer on its outbag rows
    final_replies: Mapping[int, Mapping[str, SiteReply]] = field(default_factory=dict)

    @property
    def points(self) -> Array:
        """Return the points of all trials, `(n, D)`."""
        return np.array([t.point for t in self.trials]).reshape(-1, self.space.dimension)

    def losses(self) -> Array:
        """Return `(J_l, J_r)` of all trials, `(n, 2)`; NaN for unknown ones [Sun2019, Eqs. 2-3]."""
        local = [trial.local.loss for trial in self.trials]
        remote = [pooled_loss(self.replies.get(trial, {}).values()) for trial in range(len(self.trials))]
        return np.array([local, remote], dtype=np.float64).T.reshape(-1, 2)

    def worst_losses(self) -> Array:
        """Return the largest loss at any site, `(n,)`; NaN if `J_l` or all curators' losses are missing."""
        worst = np.full(len(self.trials), np.nan)
        for number, trial in enumerate(self.trials):
            known = [a.loss for a in self.replies.get(number, {}).values() if math.isfinite(a.loss)]
            if known and math.isfinite(trial.local.loss):
                worst[number] = max(trial.local.loss, *known)
        return worst

    def failed(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return which trials failed, `(n,)`: the fit failed, or all curators that answered refused it.

        A curator that withholds its answer is not counted, because the reason is not the model.
        """
        found = np.zeros(len(self.trials), dtype=bool)
        for number, trial in enumerate(self.trials):
            replies = [a for a in self.replies.get(number, {}).values() if not a.withheld]
            refused = bool(replies) and not any(math.isfinite(a.loss) for a in replies)
            found[number] = refused or not math.isfinite(trial.local.loss)
        return found

    def exhausted(self) -> bool:
        """Return whether the last answer of every curator is withheld."""
        last = {agent: reply for replies in self.replies.values() for agent, reply in replies.items()}
        return set(last) == set(self.curators) and all(reply.withheld for reply in last.values())

    def front(self) -> list[int]:
        """Return the non-dominated trials in `(J_l, J_r)`; of equal ones only the first."""
        losses = self.losses()
        known = np.flatnonzero(np.isfinite(losses).all(axis=1))
        return [int(trial) for trial in known[non_dominated(-losses[known])]]

    @property
    def unsettled(self) -> set[int]:
        """Return the trials for which an answer may still arrive."""
        owed = {trial for trials in self.owed.values() for trial in trials}
        return owed if self.unjudged is None else owed | {self.unjudged}

    def settled(self) -> RFMSState:
        """Return the state with all unsettled trials treated as failed."""
        unsettled, failed = self.unsettled, SiteReply(math.nan, 0, "not settled")
        trials = [replace(t, local=failed) if n in unsettled else t for n, t in enumerate(self.trials)]
        replies = {t: known for t, known in self.replies.items() if t not in unsettled}
        return replace(self, trials=tuple(trials), replies=replies)


def pooled_loss(replies: Iterable[SiteReply]) -> float:
    """Return `sum n_i J_i / sum n_i` over the answers that hold a loss; NaN without any."""
    known = [(a.loss, a.num_rows) for a in replies if math.isfinite(a.loss)]
    total = sum(n for _, n in known)
    return sum(n * loss for loss, n in known) / total if total else math.nan


# -- answers on the wire -------------------------------------------------------------------------


def read_reply(report: Report) -> SiteReply:
    """Return the answer in a report; WireError if it has neither a loss nor a reason, or both."""
    values = report.values
    epsilon = float(values.get("epsilon", 0.0))
    if "failure" in values:
        reason = str(values["failure"])
        if "loss" in values or not 0 < len(reason) <= MAX_REASON:
            raise WireError(
                f"failure: expected a reason of 1 to {MAX_REASON} characters and no loss, got {len(reason)} "
                f"characters{' and a loss' if 'loss' in values else ''}"
            )
        return SiteReply(math.nan, 0, reason, epsilon)
    return replace(_reply(values.get("loss"), values.get("num_rows")), epsilon=epsilon)


def write_late(replies: Mapping[int, tuple[float, int]]) -> str:
    """Return late answers, trial -> `(loss, num_rows)`, as a text for a report."""
    return json.dumps([[trial, *reply] for trial, reply in replies.items()], separators=(",", ":"))


def read_late(text: Scalar, owed: Iterable[int]) -> dict[int, SiteReply]:
    """Return the late answers in a text; WireError unless they are about trials in `owed`, each once."""
    try:
        rows = json.loads(str(text))
        late = {trial: _reply(loss, num_rows) for trial, loss, num_rows in rows}
        known = set(owed)
        if len(late) != len(rows) or not all(type(t) is int and t in known for t in late):
            raise ValueError(f"trials {list(late)[:5]}")
    except (ValueError, TypeError, RecursionError) as error:  # WireError is a ValueError
        raise WireError(
            f"late: expected a list of [trial, loss, num_rows] for trials that were asked for, got {error}"
        ) from error
    return late


def _reply(loss: object, num_rows: object) -> SiteReply:
    if not isinstance(loss, float) or not abs(loss) <= MAX_LOSS:
        raise WireError(f"loss: expected a number of at most {MAX_LOSS:g}, got {loss!r}")
    if type(num_rows) is not int or not 1 <= num_rows <= MAX_ROWS:
        raise WireError(f"num_rows: expected between 1 and {MAX_ROWS}, got {num_rows!r}")
    return SiteReply(loss, num_rows)


def read_trials(text: Scalar) -> list[int]:
    """Return the trial ids in a text; WireError if it is not a list of them."""
    parts = str(text).split(",") if text else []
    if len(parts) > 10_000 or not all(part.isascii() and part.isdigit() and len(part) < 16 for part in parts):
        raise WireError(f"owed: expected trial ids separated by commas, got {str(text)[:80]!r}")
    return [int(part) for part in parts]


# -- the methods ---------------------------------------------------------------------------------

GUESSING = 0.5  # misclassification rate of guessing between two classes


@dataclass(frozen=True)
class Method:
    """A method with the options that it reads; see `RFMS`."""

    name: str  # "lso", "fso", "fmo", "ehvi" or "rand_mo"
    alpha: float  # of "fso"
    reference: str = "front"  # reference point of "ehvi": "front" or "ones"
    incumbent: str = "mean"  # of "lso", "fso" and "fmo", one of `proposals.INCUMBENTS`

    def combined(self, losses: Array) -> Array:
        """Return the method's objective, `(n,)`; for a method with two objectives, their mean [Eq. 4].

        Parameters
        ----------
        losses : `(n, 2)`; NaN for unknown ones
        """
        if self.name == "lso":
            return losses[:, 0]
        weight = self.alpha if self.name == "fso" else 0.5
        return weight * losses[:, 0] + (1.0 - weight) * losses[:, 1]  # alpha J_l + (1 - alpha) J_r

    def observations(self, state: RFMSState) -> tuple[Array, Array]:
        """Return the points `(n, D)` and losses `(n, 2)` that the search models."""
        kept, losses = self.observed(state.losses(), state.failed())
        return state.points[kept], losses

    def observed(self, losses: Array, failed: BoolArray) -> tuple[BoolArray, Array]:
        """Return which trials the search models, and with which losses `(n, 2)`.

        A failed trial counts as the worst loss seen. A trial whose losses are not known yet is left out.
        "lso" ignores the curators: both columns are `J_l`. Before the first success no trial is modelled.
        """
        if self.name == "lso":
            losses, failed = losses[:, [0, 0]], ~np.isfinite(losses[:, 0])
        known = np.isfinite(losses).all(axis=1) & ~failed
        if not known.any():
            return known, losses[known]
        worst = losses[known].max(axis=0)
        losses = np.where(failed[:, None], worst, losses)
        kept = known | failed
        return kept, losses[kept]

    def plan(self, features: Array, losses: Array, rng: np.random.Generator) -> proposals.ProposalPlan:
        """Return the surrogates to fit and the acquisition function to maximise for the next proposal.

        "fmo" is ParEGO: it scalarises the two losses with new random weights and maximises the expected
        improvement of the result.

        Parameters
        ----------
        features : `(n, F)`, of the points seen, `n > 0`
        losses : `(n, 2)`, finite
        """
        if self.name == "ehvi":
            corner = np.ones(2) if self.reference == "ones" else None
            return proposals.plan_volume_improvement(features, losses, corner)
        if self.name == "fmo":
            weights = proposals.draw_weights(2, rng)
            values = proposals.tchebycheff(proposals.normalise(losses), weights)
            return proposals.plan_improvement(features, values, self.incumbent)
        return proposals.plan_improvement(features, self.combined(losses), self.incumbent)

    def propose(self, state: RFMSState, rng: np.random.Generator) -> Array:
        """Return the next point `(D,)`: the maximiser of the acquisition function [Sun2019, Alg. 1, line 13].

        Before the first success return a random point.
        """
        points, losses = self.observations(state)
        if len(points) == 0:
            first: Array = state.space.snap(rng.random((1, state.space.dimension)))[0]
            return first
        function = self.plan(state.space.features(points), losses, rng).fitted(proposals.KERNEL)
        distance, count = proposals.MIN_DISTANCE, proposals.NUM_CANDIDATES
        point: Array = maximise(function, state.space, state.points, count, distance, rng)[0]
        return point


def shipped(state: RFMSState, criterion: str, method: Method) -> int | None:
    """Return the trial to ship [Sun2019, Alg. 1, line 22]: the first minimiser of the criterion.

    None if no trial succeeded.
    """
    losses, worst = state.losses(), np.where(state.failed(), np.nan, state.worst_losses())
    if criterion == "max" or (criterion == "guarded" and bool(np.any(worst < GUESSING))):
        values = worst
    elif criterion in ("mean", "guarded"):
        values = losses.mean(axis=1)
    else:
        values = method.combined(losses)
    values = np.where(state.failed(), np.nan, values)
    return int(np.nanargmin(values)) if np.isfinite(values).any() else None
