"""An agent's own answer: its best configuration in a study, see `algorithms.records.Best`.

The answer stays at the agent. The agent logs it when the study has ended and passes it to the app's
`on_finish`. An operator reads it from the journal with `fbo-flower best JOURNAL`, at any time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from logging import ERROR
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.common.logger import log

from fbo_flower.algorithms import Algorithm, make_algorithm
from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.records import AgentState
from fbo_flower.clients.memory import Memory, agent_state_from_bytes
from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.numerics.acquisition.hypervolume import non_dominated
from fbo_flower.space.copies import own
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage.agent_journal import StoredStudy, read_studies


@dataclass(frozen=True)
class OwnAnswer:
    """The best configuration that an agent has evaluated in a study.

    Parameters
    ----------
    agent, study : ids of the agent and of the study
    algorithm : name of the study's algorithm
    config : the best configuration; None: no evaluation has succeeded and holds the agent's limits. With
        several objectives it is the best of `front` in the first one
    value : what the objective returned there, of a bandit the mean of the pulls; NaN without a configuration
    num_evaluations : evaluations that the agent has made in the study, failed ones included
    aims : the agent's objectives and limits
    mean : what the agent's model expects there, if it finds noise; it chose the configuration then. Else NaN
    outputs : name -> number of the configuration, or of `nearest`, with several objectives or limits
    nearest : the configuration that is nearest to holding the limits, if none holds them; else empty
    front : with several objectives, configuration and outputs of each trial that holds the limits and that no
        other such trial dominates
    """

    agent: str
    study: str
    algorithm: str
    config: dict[str, Any] | None
    value: float
    num_evaluations: int
    aims: Aims = NUMBER
    mean: float = math.nan
    outputs: Mapping[str, float] = field(default_factory=dict)
    nearest: Mapping[str, Any] = field(default_factory=dict)
    front: tuple[tuple[dict[str, Any], Mapping[str, float]], ...] = ()

    @property
    def minimize(self) -> bool:
        """Whether smaller values are better."""
        return self.aims.minimize

    def __str__(self) -> str:
        evaluations = f"{self.num_evaluations} evaluation{'' if self.num_evaluations == 1 else 's'}"
        if self.config is None:
            if not self.nearest:
                return f"no value after {evaluations}"
            limits = ", ".join(f"{name} {side} {bound:.6g}" for name, side, bound in self.aims.limits)
            return (
                f"no configuration holds {limits} after {evaluations}; the nearest has "
                f"{_numbers(self.outputs)}, with {json.dumps(self.nearest)}"
            )
        if self.front:
            points = "; ".join(f"{_numbers(outputs)}, with {json.dumps(c)}" for c, outputs in self.front)
            number = f"{len(self.front)} configuration{'' if len(self.front) == 1 else 's'}"
            return f"front of {number} after {evaluations}: {points}"
        mean = f", mean {self.mean:.6g} of noisy values," if math.isfinite(self.mean) else ""
        found = f"best value {self.value:.6g}{mean} after {evaluations}, with {json.dumps(self.config)}"
        return f"{found}: {_numbers(self.outputs)}" if self.outputs else found


OnFinish = Callable[[OwnAnswer, Context], object]


def own_answer(agent: str, study: str, algorithm: Algorithm[Any], agent_state: AgentState) -> OwnAnswer:
    """Return the agent's own answer; observations from before the study do not count."""
    history, aims, decode = agent_state.history, agent_state.aims, agent_state.space.decode
    sign = -1.0 if aims.minimize else 1.0
    nothing = OwnAnswer(agent, study, algorithm.name, None, math.nan, agent_state.next_trial, aims)

    def outputs_of(row: int) -> Mapping[str, float]:
        return {} if history.outputs is None else aims.measured(history.outputs[row])

    best = algorithm.best(agent_state)
    if best is not None:
        row = int(np.argmax((history.points == best.point).all(axis=1))) if len(history) else 0
        value, mean = (sign * number + 0.0 for number in (best.value, best.mean))
        return replace(nothing, config=decode(best.point), value=value, mean=mean, outputs=outputs_of(row))
    if history.outputs is None:
        return nothing
    own, rows = history.trials >= 0, np.flatnonzero(np.isfinite(agent_state.usable_values(own=True)))
    if len(rows):  # several objectives
        rows = rows[non_dominated(history.outputs[rows, : len(aims.objectives)])]
        first = int(rows[np.argmax(history.values[rows])])
        front = tuple((decode(history.points[r]), outputs_of(int(r))) for r in rows)
        value = sign * float(history.values[first]) + 0.0
        config = decode(history.points[first])
        return replace(nothing, config=config, value=value, outputs=outputs_of(first), front=front)
    if not np.isfinite(history.outputs[own]).any():
        return nothing
    row = aims.nearest(np.where(own[:, None], history.outputs, np.nan))
    return replace(nothing, nearest=decode(history.points[row]), outputs=outputs_of(row))


def _numbers(outputs: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in outputs.items())


def answer_at_end(
    memory: Memory,
    agent: str,
    study: str,
    space: SearchSpace,
    judged: Callable[[AgentState], int],
    aims: Aims,
) -> OwnAnswer | None:
    """Return the agent's own answer, and remember that the study has ended.

    Parameters
    ----------
    judged : the number of models that a site has judged at the end of the study, which have no trial
    aims : the agent's objectives and limits, unless its memory has those of the study

    Returns
    -------
    None, if the agent has evaluated nothing in this study, or nothing since it was told the same before.
    """
    stored = memory.study(study)
    if stored is None or not stored.algorithm:
        return None
    aims = Aims.from_json(stored.aims or aims.to_json(bounds=True))
    agent_state = agent_state_from_bytes(stored.state, space, aims)
    answer = own_answer(agent, study, algorithm_of(stored.algorithm), agent_state)
    answer = replace(answer, num_evaluations=answer.num_evaluations + judged(agent_state))
    ended = {"evaluations": answer.num_evaluations}
    if not answer.num_evaluations or memory.note(f"ended.{study}") == ended:
        return None
    memory.put_note(f"ended.{study}", ended)
    return answer


def call_on_finish(answer: OwnAnswer, on_finish: OnFinish | None, context: Context) -> None:
    """Pass an answer to the app; an exception of the app is logged only."""
    if on_finish is None:
        return
    try:
        theirs = {name: own(getattr(context, name)) for name in ("node_config", "run_config")}
        on_finish(answer, replace(context, **theirs))
    except Exception:  # the app's code may raise anything; the study has ended and its answer is kept
        log(ERROR, "agent %s: on_finish raised an exception", answer.agent, exc_info=True)


def algorithm_of(text: str) -> Algorithm[Any]:
    """Return the algorithm whose name and options `guards.Terms.pinned` holds as text."""
    name, _, options = text.partition(" ")
    return make_algorithm(name, json.loads(options))


@dataclass(frozen=True)
class StoredAnswer:
    """An agent's own answer after its last finished task, read from its journal.

    Parameters
    ----------
    num_failed, failure : evaluations that failed, and why the first of them did; "" if none failed
    unreadable : why the answer cannot be read; "" if it can
    """

    answer: OwnAnswer
    num_failed: int
    failure: str
    unreadable: str = ""


def read_answers(path: Path) -> list[StoredAnswer]:
    """Return an agent's own answer in each study of its journal, the latest study last.

    JournalError if the file is not an agent's journal.
    """
    agent, studies = read_studies(path)
    return [_read(agent, stored) for stored in studies]


def _read(agent: str, stored: StoredStudy) -> StoredAnswer:
    try:
        algorithm = algorithm_of(stored.algorithm)
        space, aims = SearchSpace.from_json(stored.space), Aims.from_json(stored.aims)
        state = agent_state_from_bytes(stored.memory, space, aims)
        answer = own_answer(agent, stored.study, algorithm, state)
        return StoredAnswer(answer, stored.num_failed, stored.failure)
    except (ConfigError, JournalError, ValueError) as error:  # e.g. the algorithm is not installed here
        name = stored.algorithm.partition(" ")[0]
        nothing = OwnAnswer(agent, stored.study, name, None, math.nan, 0)
        return StoredAnswer(nothing, stored.num_failed, stored.failure, unreadable=str(error))
