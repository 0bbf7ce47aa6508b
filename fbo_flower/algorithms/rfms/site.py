"""RFMS on a site: the openbox trains, curators judge, and at the end every site judges each model once.

A site stores in its state `-loss` per trial in the history (a curator that adds noise stores the noisy loss
that it sent), the number of rows per trial, and its answers of the phase FINISH. The openbox also stores its
newest model, so that it does not train again when a task is sent again, and the digest of every model, so
that it judges only its own.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np

from fbo_flower.algorithms.messages import Content, octets, real
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    IntArray,
    Phase,
    Scalar,
    Task,
    Trials,
)
from fbo_flower.algorithms.requests import Rng
from fbo_flower.algorithms.rfms.state import REFUSED, WITHHELD, read_trials, write_late
from fbo_flower.errors import WireError

State = TypeVar("State")
MAX_MODEL_BYTES = 48 * 2**20  # largest packed model in a message
MAX_MODELS = 1000  # largest number of models that are judged at the end
DIGEST_BYTES = 32


def digest(model: AnyArray) -> AnyArray:
    """Return the SHA-256 of a packed model, `(32,)` uint8."""
    return np.frombuffer(hashlib.sha256(np.ascontiguousarray(model).tobytes()).digest(), dtype=np.uint8)


def num_final_judgements(agent_state: AgentState) -> int:
    """Return the number of models that a site has judged at the end of the study."""
    return len(agent_state.arrays.get("final.trials", ()))


@dataclass(frozen=True, kw_only=True)
class SiteTask(Content):
    """A task: a configuration to train, or a model to judge with the list of all models that there are."""

    point: Annotated[Array | None, real(1, "D", low=0.0, high=1.0)] = None
    model: Annotated[AnyArray | None, octets(None, most=MAX_MODEL_BYTES)] = None
    manifest: Annotated[AnyArray | None, octets(None, DIGEST_BYTES, most=MAX_MODELS)] = None
    owed: str = ""

    @classmethod
    def for_evaluations(cls, task: Task) -> Task:
        """Return the task without the list of losses that the server missed, which changes."""
        return replace(task, values={name: value for name, value in task.values.items() if name != "owed"})

    @classmethod
    def report_kind(cls, task: Task) -> str | None:
        return f"model of trial {task.trial}"


@dataclass(frozen=True, kw_only=True)
class SiteReport(Content):
    """A report: a model that was trained, or a judgement."""

    model: Annotated[AnyArray | None, octets(None, most=MAX_MODEL_BYTES)] = None
    loss: float = math.inf
    num_rows: int = -1
    failure: str = ""
    late: str = ""
    epsilon: float = 0.0


class Sites(Algorithm[State]):
    """The work of openbox, curators and lockboxes on a task."""

    task_content: ClassVar[type[Content]] = SiteTask
    report_content: ClassVar[type[Content]] = SiteReport

    def propose(self, task: Task, agent_state: AgentState, rng: Rng) -> Trials | None:
        """Return a query that trains the task's point or judges its model; None if that was done before."""
        if task.phase is Phase.FINISH:
            return self._propose_last(task, agent_state)
        if "manifest" in agent_state.arrays:
            raise WireError(
                f"phase: expected finish, because this study's models are fixed already, got {task.phase}"
            )
        if task.num_trials != 1 or "point" not in task.arrays:
            raise WireError(
                f"task: expected one trial and its point, got {task.num_trials} trials and "
                f"{', '.join(task.arrays) or 'no array'}"
            )
        if (task.phase is Phase.EVALUATE) != ("model" in task.arrays):
            raise WireError(
                "model: expected one to judge in the phase evaluate and none in train, got "
                f"{'one' if 'model' in task.arrays else 'none'} in {task.phase}"
            )
        if agent_state.next_trial >= task.end:
            return None
        return Trials(np.asarray(task.arrays["point"], dtype=np.float64), artifact=task.arrays.get("model"))

    def _propose_last(self, task: Task, agent_state: AgentState) -> Trials | None:
        """Return a query that judges a model of the end; None if the site has judged it.

        The manifest (digests of all models) of the first such task fixes the models that this site judges in
        this study, each once.
        """
        model, manifest = task.arrays.get("model"), task.arrays.get("manifest")
        if model is None or manifest is None or task.num_trials:
            raise WireError(
                "finish: expected a model and a manifest and no trial, got "
                f"{', '.join(task.arrays) or 'no array'} and {task.num_trials} trials"
            )
        known = agent_state.arrays.get("manifest")
        if known is not None and not np.array_equal(known, manifest):
            raise WireError("manifest: expected the one of the first task of the end, got another one")
        own = digest(model)
        if not (manifest == own).all(axis=1).any():
            raise WireError("model: expected one of the manifest, got another one")
        if "digests" in agent_state.arrays and not (agent_state.arrays["digests"] == own).all(axis=1).any():
            raise WireError("model: expected one that this site has made, got another one")
        if _place(agent_state, task.trial) is not None:
            return None
        return Trials(np.full((1, agent_state.space.dimension), 0.5), artifact=model)

    def learn(self, task: Task, agent_state: AgentState, outcome: Trials, rng: Rng) -> AgentState:
        """Store the answer, and at the openbox the model."""
        rows = outcome.measures.get("num_rows", np.zeros(len(outcome.values))).astype(np.int64)
        spent = {"epsilon": outcome.measures["epsilon"]} if "epsilon" in outcome.measures else {}
        if task.phase is Phase.FINISH:
            trials = np.array([task.trial], dtype=np.int64)
            new = {"final.trials": trials, "final.losses": -outcome.values, "final.rows": rows}
            kept = {name: _extended(agent_state, name, more) for name, more in new.items()}
            kept |= {f"final.{name}": epsilon for name, epsilon in spent.items()}
            return agent_state.write(manifest=np.asarray(task.arrays["manifest"]), **kept)
        before = np.zeros(len(agent_state.history) - len(agent_state.arrays.get("rows", ())), dtype=np.int64)
        agent_state = agent_state.learn(outcome).write(
            rows=_extended(agent_state, "rows", np.concatenate([before, rows])), **spent
        )
        if outcome.artifact is None:
            return agent_state
        return agent_state.write(
            model=outcome.artifact,
            model_trial=outcome.trials,
            digests=_extended(agent_state, "digests", digest(outcome.artifact)[None, :]),
        )

    def summarise(self, task: Task, agent_state: AgentState, rng: Rng) -> Content:
        """Return the loss, the number of rows and, from the openbox, the model of a fit that succeeded."""
        return SiteReport(model=self._model(task, agent_state), **self._loss(task, agent_state))

    def _model(self, task: Task, agent_state: AgentState) -> AnyArray | None:
        values = agent_state.history.select(task.trial, task.end).values
        if task.phase is not Phase.TRAIN or not np.isfinite(values).all():
            return None
        if task.trial not in agent_state.arrays["model_trial"]:
            raise WireError(
                f"trial: expected {int(agent_state.arrays['model_trial'][0])}, the only one whose model this "
                f"site stores, got {task.trial}"
            )
        return agent_state.arrays["model"]

    def _loss(self, task: Task, agent_state: AgentState) -> dict[str, Any]:
        """Return the loss and the number of rows, or why there is none, and losses that the server missed."""
        history = agent_state.history
        if task.phase is Phase.FINISH:
            place = _place(agent_state, task.trial)
            assert place is not None
            loss = float(agent_state.arrays["final.losses"][place])
            values = _reply_values(loss, int(agent_state.arrays["final.rows"][place]), "")
            return {**values, **_spent(agent_state, "final.epsilon")}
        row = int(np.flatnonzero(history.trials == task.trial)[0])
        rows = agent_state.arrays["rows"]
        values = _reply_values(
            -float(history.values[row]), int(rows[row]), history.reasons.get(task.trial, "")
        )
        owed = [t for t in read_trials(task.values.get("owed", "")) if t != task.trial]
        late: dict[int, tuple[float, int]] = {}
        for trial in owed:
            for i in np.flatnonzero((history.trials == trial) & np.isfinite(history.values)).tolist():
                late[trial] = -float(history.values[i]) + 0.0, int(rows[i])
        if late:
            values["late"] = write_late(late)
        return {**values, **_spent(agent_state, "epsilon")}


def _reply_values(loss: float, num_rows: int, reason: str) -> dict[str, Scalar]:
    """Return the values of an answer.

    An exception's text may contain data, so only reasons that this package wrote itself are sent.
    """
    if math.isfinite(loss):
        return {"loss": loss + 0.0, "num_rows": num_rows}
    return {"failure": reason if reason.startswith((REFUSED, WITHHELD)) else "failed"}


def _spent(agent_state: AgentState, name: str) -> dict[str, Scalar]:
    spent = float(np.sum(agent_state.arrays.get(name, 0.0)))
    return {"epsilon": spent} if spent > 0 else {}


def _place(agent_state: AgentState, trial: int) -> int | None:
    """Return the row of a trial among the answers of the phase FINISH; None if there is none."""
    found = np.flatnonzero(agent_state.arrays.get("final.trials", np.empty(0)) == trial)
    return int(found[0]) if len(found) else None


def _extended(agent_state: AgentState, name: str, more: AnyArray | Array | IntArray) -> AnyArray:
    known = agent_state.arrays.get(name)
    return more if known is None else np.concatenate([known, more])
