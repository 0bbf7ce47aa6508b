"""The sites' half of RFMS: train at the openbox, judge at the curators, judge once at the end everywhere.

What a site keeps lies in its state: `-loss` per trial in the history (a curator that adds noise keeps what
it sent), `rows` beside it, and the answers of the last exchanges. The openbox keeps its newest model, so that
a task that comes again is not trained again, and the digest of every model, so that it recognises its own.
"""

from __future__ import annotations

import hashlib
import math
from typing import TypeVar

import numpy as np

from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    IntArray,
    Outcome,
    Payload,
    Phase,
    Query,
    Scalar,
    Task,
)
from fbo_flower.algorithms.rfms.state import REFUSED, WITHHELD, read_trials, write_late
from fbo_flower.algorithms.schema import ArraySpec, Schema
from fbo_flower.algorithms.session import Stepwise
from fbo_flower.errors import WireError
from fbo_flower.space.space import SearchSpace

State = TypeVar("State")
MAX_MODEL_BYTES = 48 * 2**20  # of one packed model on the wire
MAX_MODELS = 1000  # that are judged at the end
DIGEST_BYTES = 32


def digest(model: AnyArray) -> AnyArray:
    """Return the SHA-256 of a packed model, `(32,)` uint8."""
    return np.frombuffer(hashlib.sha256(np.ascontiguousarray(model).tobytes()).digest(), dtype=np.uint8)


class Sites(Stepwise, Algorithm[State]):
    """What openbox, curators and lockboxes do with a task."""

    def propose(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Query | None:
        """Train the point, or judge the model that came, unless that was done before."""
        if task.phase is Phase.FINISH:
            return self._propose_last(task, agent_state)
        if "manifest" in agent_state.arrays:
            raise WireError("phase: expected finish, this study's models are fixed already")
        if task.num_trials != 1 or "point" not in task.arrays:
            raise WireError("task: expected one trial and its point")
        if (task.phase is Phase.EVALUATE) != ("model" in task.arrays):
            raise WireError("model: expected one to judge in evaluate, and only there")
        if agent_state.next_trial >= task.end:
            return None
        return Query(np.asarray(task.arrays["point"], dtype=np.float64), artifact=task.arrays.get("model"))

    def _propose_last(self, task: Task, agent_state: AgentState) -> Query | None:
        """The first task of the end fixes which models may be judged in this study, each once."""
        model, manifest = task.arrays.get("model"), task.arrays.get("manifest")
        if model is None or manifest is None or task.num_trials:
            raise WireError("finish: expected a model and the manifest of all, without a trial")
        known = agent_state.arrays.get("manifest")
        if known is not None and not np.array_equal(known, manifest):
            raise WireError("manifest: expected that of the first task of the end, got another one")
        own = digest(model)
        if not (manifest == own).all(axis=1).any():
            raise WireError("model: expected one of the manifest")
        if "digests" in agent_state.arrays and not (agent_state.arrays["digests"] == own).all(axis=1).any():
            raise WireError("model: expected one that this site has made")
        if _place(agent_state, task.trial) is not None:
            return None
        return Query(np.full((1, agent_state.space.dimension), 0.5), artifact=model)

    def learn(
        self, task: Task, agent_state: AgentState, outcome: Outcome, rng: np.random.Generator
    ) -> AgentState:
        """Write down the answer, and at the openbox the model."""
        rows = _measure(outcome, "num_rows").astype(np.int64)
        spent = {"epsilon": outcome.measures["epsilon"]} if "epsilon" in outcome.measures else {}
        if task.phase is Phase.FINISH:
            manifest = np.asarray(task.arrays["manifest"])
            return agent_state.write(
                **{
                    "manifest": manifest,
                    "final.trials": _extended(
                        agent_state, "final.trials", np.array([task.trial], dtype=np.int64)
                    ),
                    "final.losses": _extended(agent_state, "final.losses", -outcome.values),
                    "final.rows": _extended(agent_state, "final.rows", rows),
                    **{f"final.{name}": epsilon for name, epsilon in spent.items()},
                }
            )
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

    def summarise(self, task: Task, agent_state: AgentState, rng: np.random.Generator) -> Payload:
        """Return the loss, the number of rows and, from the openbox, the model of a fit that succeeded."""
        return Payload(self._model(task, agent_state), self._loss(task, agent_state))

    def _model(self, task: Task, agent_state: AgentState) -> dict[str, AnyArray]:
        if (
            task.phase is not Phase.TRAIN
            or not np.isfinite(agent_state.history.select(task.trial, task.end).values).all()
        ):
            return {}
        if task.trial not in agent_state.arrays["model_trial"]:
            raise WireError(
                f"trial: expected {int(agent_state.arrays['model_trial'][0])}, whose model is kept"
            )
        return {"model": agent_state.arrays["model"]}

    def _loss(self, task: Task, agent_state: AgentState) -> dict[str, Scalar]:
        """Return the loss and the number of rows, or why there is none; and what the server has missed."""
        history = agent_state.history
        if task.phase is Phase.FINISH:
            place = _place(agent_state, task.trial)
            assert place is not None
            loss = float(agent_state.arrays["final.losses"][place])
            said = _said(loss, int(agent_state.arrays["final.rows"][place]), "")
            return {**said, **_spent(agent_state, "final.epsilon")}
        row = int(np.flatnonzero(history.trials == task.trial)[0])
        rows = agent_state.arrays["rows"]
        said = _said(-float(history.values[row]), int(rows[row]), history.failures.get(task.trial, ""))
        owed = [t for t in read_trials(task.values.get("owed", "")) if t != task.trial]
        late: dict[int, tuple[float, int]] = {}
        for trial in owed:
            for i in np.flatnonzero((history.trials == trial) & np.isfinite(history.values)).tolist():
                late[trial] = -float(history.values[i]) + 0.0, int(rows[i])
        if late:
            said["late"] = write_late(late)
        return {**said, **_spent(agent_state, "epsilon")}

    # -- what may cross the wire ---------------------------------------------------------------------

    def task_schema(self, space: SearchSpace) -> Schema:
        return Schema(
            arrays={
                "point": ArraySpec((1, space.dimension), low=0.0, high=1.0),
                "model": ArraySpec((None,), "uint8", 0, 255, MAX_MODEL_BYTES),
                "manifest": ArraySpec((None, DIGEST_BYTES), "uint8", 0, 255, MAX_MODELS),
            },
            values={"owed": str},
        )

    def report_schema(self, space: SearchSpace) -> Schema:
        return Schema(
            arrays={"model": ArraySpec((None,), "uint8", 0, 255, MAX_MODEL_BYTES)},
            values={"loss": float, "num_rows": int, "failure": str, "late": str, "epsilon": float},
        )


def _said(loss: float, num_rows: int, reason: str) -> dict[str, Scalar]:
    """A reason may hold values of the data; only what this package wrote itself is let out."""
    if math.isfinite(loss):
        return {"loss": loss + 0.0, "num_rows": num_rows}
    return {"failure": reason if reason.startswith((REFUSED, WITHHELD)) else "failed"}


def _spent(agent_state: AgentState, name: str) -> dict[str, Scalar]:
    spent = float(np.sum(agent_state.arrays.get(name, 0.0)))
    return {"epsilon": spent} if spent > 0 else {}


def _place(agent_state: AgentState, trial: int) -> int | None:
    """Return where the last exchange of a trial stands in the agent's state."""
    found = np.flatnonzero(agent_state.arrays.get("final.trials", np.empty(0)) == trial)
    return int(found[0]) if len(found) else None


def _measure(outcome: Outcome, name: str) -> Array:
    return outcome.measures.get(name, np.zeros(len(outcome.values)))


def _extended(agent_state: AgentState, name: str, more: AnyArray | Array | IntArray) -> AnyArray:
    known = agent_state.arrays.get(name)
    return more if known is None else np.concatenate([known, more])
