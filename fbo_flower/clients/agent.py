"""`TuningAgent`: one participant, as Flower's `NumPyClient`.

It checks what it is asked, evaluates the user's objective on its own data, remembers, and answers
with what the algorithm lets travel. `fit` and `evaluate` take and return the packed form of
`fbo_flower.wire`, so one class serves a decorated ClientApp, `client_fn` and a unit test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from logging import DEBUG, WARNING
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context
from flwr.client import NumPyClient
from flwr.common.logger import log

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm, make_algorithm
from fbo_flower.algorithms.records import (
    AnyArray,
    Array,
    History,
    IntArray,
    Notebook,
    Outcome,
    Report,
    Scalar,
    Task,
)
from fbo_flower.clients.objective import Objective, ObjectiveContext, evaluate
from fbo_flower.errors import ConfigError, ObjectiveError, WireError
from fbo_flower.frozen import freeze, thaw
from fbo_flower.numerics.seeding import fresh_entropy, generator
from fbo_flower.numerics.threads import single_thread
from fbo_flower.space import SearchSpace

DISCLOSURES = ("none", "incumbent", "trials")
STATE_KEY = "fbo-flower"
_HISTORY = ("points", "values", "trials")
Prior = Mapping[str, tuple[Array, Array]]


@dataclass(frozen=True)
class _Memory:
    """What an agent keeps between two messages."""

    study: str
    entropy: int
    notebook: Notebook


class TuningAgent(NumPyClient):
    """An agent that tunes on its own data.

    Parameters
    ----------
    objective : `objective(config, context) -> float`, larger is better
    space : the search space, the same at every agent
    context : Flower's context of this node; `node_config` names the agent (`agent`, else
        `partition-id`) and may set `disclose` and `role`; `state` holds the agent's memory
    seed : seed of the agent's draws. None (on devices): entropy of its own, which the server cannot
        know. In simulation the study's seed, so that runs repeat
    disclose : what may leave beyond the algorithm's report: "none", "incumbent" (the best value so
        far) or "trials" (all points and values). The operator's `node_config` comes first
    prior : agent -> `(points (n, D), values (n,))` observed before this study

    Raises
    ------
    ConfigError
        If the node has no name or `disclose` is unknown.
    """

    def __init__(
        self,
        objective: Objective,
        space: SearchSpace,
        context: Context,
        *,
        seed: int | None = None,
        disclose: str = "none",
        prior: Prior | None = None,
    ) -> None:
        self._objective = objective
        self._space = space
        self._context = context
        self._seed = seed
        self._prior = prior or {}
        self._disclose = str(context.node_config.get("disclose", disclose))
        if self._disclose not in DISCLOSURES:
            raise ConfigError(f"disclose: expected one of {', '.join(DISCLOSURES)}, got {self._disclose!r}")
        self._agent = agent_id(context)

    # -- Flower's interface --------------------------------------------------------------------

    def get_properties(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the roll-call: who this agent is and what it searches."""
        return {
            "schema": wire.SCHEMA_VERSION,
            "agent": self._agent,
            "space": self._space.to_json(),
            "digest": self._space.digest,
            "role": str(self._context.node_config.get("role", "")),
            "disclose": self._disclose,
        }

    def fit(
        self, parameters: list[AnyArray], config: dict[str, Scalar]
    ) -> tuple[list[AnyArray], int, dict[str, Scalar]]:
        """Do a task of the TRAIN half-round, or of the last exchange.

        Returns
        -------
        The packed report: arrays, the number of trials, scalars.

        Raises
        ------
        WireError, ConfigError
            If the task is malformed or not for this agent; nothing was evaluated.
        """
        arrays, scalars, task = self._answer(parameters, config)
        return arrays, task.num_trials, scalars

    def evaluate(
        self, parameters: list[AnyArray], config: dict[str, Scalar]
    ) -> tuple[float, int, dict[str, Scalar]]:
        """Do a task of the EVALUATE half-round; Flower lets no arrays back from it."""
        arrays, scalars, task = self._answer(parameters, config)
        if arrays:
            names = scalars["names"]
            raise WireError(f"evaluate: expected a report of scalars, got {names!r}")
        return 0.0, task.num_trials, scalars

    # -- one task ------------------------------------------------------------------------------

    def _answer(
        self, parameters: list[AnyArray], config: Mapping[str, Scalar]
    ) -> tuple[list[AnyArray], dict[str, Scalar], Task]:
        envelope = wire.unpack_envelope(config)
        if envelope.agent != self._agent:
            raise WireError(f"agent: expected {self._agent!r}, got {envelope.agent!r}")
        if envelope.space != self._space.digest:
            raise WireError(f"space: expected digest {self._space.digest}, got {envelope.space}")
        with single_thread():
            algorithm = make_algorithm(envelope.algorithm, _options(envelope.options))
            algorithm.check(self._space)
            task = wire.unpack_task(parameters, config, algorithm.task_schema(self._space))
            memory = self._remember(envelope.study)
            notebook, entropy = memory.notebook, memory.entropy
            if task.trial > notebook.history.next_trial:
                raise WireError(f"trial: expected at most {notebook.history.next_trial}, got {task.trial}")
            notebook = self._work(algorithm, task, notebook, entropy)
            self._keep(_Memory(envelope.study, entropy, notebook))
            rng = generator(
                entropy, "agent", self._agent, "summarise", str(task.phase), task.trial, task.num_trials
            )
            arrays = algorithm.summarise(task, notebook, rng)
        done = notebook.history.select(task.trial, task.end)
        report = Report(task.trial, task.num_trials, len(done.failures), arrays)
        log(DEBUG, "agent %s, round %d: sends %s", self._agent, task.round, _describe(arrays, self._disclose))
        packed = wire.pack_report(report, task, envelope, self._disclosure(task, notebook, done))
        return *packed, task

    def _work(self, algorithm: Algorithm[Any], task: Task, notebook: Notebook, entropy: int) -> Notebook:
        """Evaluate until the task is done. The draws of a trial depend on its id alone."""
        while True:
            trial = notebook.history.next_trial
            rng = generator(entropy, "agent", self._agent, "propose", str(task.phase), trial)
            query = algorithm.propose(task, notebook, rng)
            if query is None:
                return notebook
            outcome = self._evaluate(query.points, trial, task, entropy)
            rng = generator(entropy, "agent", self._agent, "learn", str(task.phase), trial)
            notebook = algorithm.learn(task, notebook, outcome, rng)

    def _evaluate(self, points: Array, first_trial: int, task: Task, entropy: int) -> Outcome:
        points = self._space.snap(points)
        values, failures = np.full(len(points), np.nan), {}
        for i, point in enumerate(points):
            trial = first_trial + i
            context = ObjectiveContext(
                self._agent,
                _partition(self._context),
                trial,
                task.round,
                generator(entropy, "agent", self._agent, "objective", trial),
                self._context.node_config,
                self._context.run_config,
            )
            try:
                values[i] = evaluate(self._objective, self._space.decode(point), context)
            except ObjectiveError as error:
                failures[trial] = str(error)
                log(WARNING, "agent %s, trial %d failed: %s", self._agent, trial, error)
        trials = np.arange(first_trial, first_trial + len(points), dtype=np.int64)
        return Outcome(points, values, trials, failures)

    def _disclosure(self, task: Task, notebook: Notebook, done: Outcome) -> wire.Disclosure:
        if self._disclose == "none":
            return wire.Disclosure()
        values = notebook.history.values[notebook.history.trials >= 0]
        best = float(np.nanmax(values)) if np.isfinite(values).any() else float("nan")
        everything = self._disclose == "trials" and task.num_trials > 0
        return wire.Disclosure(done if everything else None, best)

    # -- memory --------------------------------------------------------------------------------

    def _remember(self, study: str) -> _Memory:
        """Return this agent's memory of the study; a new study starts a new one."""
        record = self._context.state.get(STATE_KEY)
        if isinstance(record, ConfigRecord):
            arrays, values = thaw(cast(bytes, record["memory"]))
            if values["study"] == study and values["space"] == self._space.digest:
                points, observed, trials = (arrays.pop(f"history.{name}") for name in _HISTORY)
                failures = {int(trial): reason for trial, reason in values["failures"].items()}
                history = History(
                    cast(Array, points), cast(Array, observed), cast(IntArray, trials), failures
                )
                return _Memory(study, values["entropy"], Notebook(self._space, history, arrays))
        points, observed = self._prior.get(self._agent, (np.empty((0, self._space.dimension)), np.empty(0)))
        history = History.prior(self._space.snap(points), np.asarray(observed, dtype=np.float64))
        entropy = fresh_entropy() if self._seed is None else self._seed
        return _Memory(study, entropy, Notebook(self._space, history))

    def _keep(self, memory: _Memory) -> None:
        history = memory.notebook.history
        own = {f"history.{name}": getattr(history, name) for name in _HISTORY}
        values = {
            "study": memory.study,
            "space": self._space.digest,
            "entropy": memory.entropy,
            "failures": {str(trial): reason for trial, reason in history.failures.items()},
        }
        self._context.state[STATE_KEY] = ConfigRecord(
            {"memory": freeze({**memory.notebook.arrays, **own}, values)}
        )


def agent_id(context: Context) -> str:
    """Return the stable id of a node: `agent` in its `node_config`, else its `partition-id`."""
    for key in ("agent", "partition-id"):
        if key in context.node_config:
            name = str(context.node_config[key])
            if 0 < len(name) <= 100 and name.isprintable() and "," not in name:
                return name
            raise ConfigError(f"{key}: expected 1 to 100 printable characters without a comma, got {name!r}")
    raise ConfigError("node_config: expected 'agent' or 'partition-id' to name this agent, got neither")


def _partition(context: Context) -> int:
    partition = context.node_config.get("partition-id")
    return int(partition) if partition is not None else -1


def _options(text: str) -> dict[str, object]:
    try:
        options = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"options: expected a JSON object, got {text[:80]!r}") from error
    if not isinstance(options, dict):
        raise WireError(f"options: expected a JSON object, got {text[:80]!r}")
    return options


def _describe(arrays: Mapping[str, AnyArray], disclose: str) -> str:
    named = [f"{name} {array.shape}" for name, array in arrays.items()]
    extra = {"none": [], "incumbent": ["its best value"], "trials": ["its trials"]}[disclose]
    return ", ".join(named + extra) or "nothing but the number of trials"
