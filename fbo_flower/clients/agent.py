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
    Query,
    Report,
    Scalar,
    Task,
)
from fbo_flower.clients.objective import (
    Objective,
    ObjectiveContext,
    can_repeat,
    evaluate,
    evaluate_repeatedly,
)
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
            if task.trial > notebook.next_trial:
                raise WireError(f"trial: expected at most {notebook.next_trial}, got {task.trial}")
            notebook, outcomes = self._work(algorithm, task, notebook, entropy)
            self._keep(_Memory(envelope.study, entropy, notebook))
            rng = generator(
                entropy, "agent", self._agent, "summarise", str(task.phase), task.trial, task.num_trials
            )
            arrays = algorithm.summarise(task, notebook, rng)
        kept = notebook.history.select(task.trial, task.end)
        done = kept if len(kept.trials) or not outcomes else _joined(outcomes)
        num_failed = int(np.sum(done.pulls)) - _num_succeeded(done)
        report = Report(task.trial, task.num_trials, num_failed, arrays)
        log(DEBUG, "agent %s, round %d: sends %s", self._agent, task.round, _describe(arrays, self._disclose))
        disclosure = self._disclosure(algorithm, task, notebook, done)
        return *wire.pack_report(report, task, envelope, disclosure), task

    def _work(
        self, algorithm: Algorithm[Any], task: Task, notebook: Notebook, entropy: int
    ) -> tuple[Notebook, list[Outcome]]:
        """Evaluate until the task is done. The draws of a trial depend on its id alone."""
        outcomes: list[Outcome] = []
        session = algorithm.session(task, notebook)
        if session is not None:
            trial = notebook.next_trial
            while (query := session.ask()) is not None:
                outcomes.append(self._evaluate(query, trial, task, entropy))
                session.tell(outcomes[-1])
                trial = outcomes[-1].end
            return session.close(), outcomes
        while True:
            trial = notebook.next_trial
            rng = generator(entropy, "agent", self._agent, "propose", str(task.phase), trial)
            query = algorithm.propose(task, notebook, rng)
            if query is None:
                return notebook, outcomes
            outcome = self._evaluate(query, trial, task, entropy)
            rng = generator(entropy, "agent", self._agent, "learn", str(task.phase), trial)
            notebook = algorithm.learn(task, notebook, outcome, rng)
            outcomes.append(outcome)

    def _evaluate(self, query: Query, first_trial: int, task: Task, entropy: int) -> Outcome:
        points = self._space.snap(query.points)
        spans = np.ones(len(points), dtype=np.int64) if query.repeats is None else query.repeats
        trials = first_trial + np.cumsum(spans) - spans
        values, squares = np.full(len(points), np.nan), np.zeros(len(points))
        counts, failures = np.zeros(len(points), dtype=np.int64), {}
        for i, (point, trial, span) in enumerate(zip(points, trials.tolist(), spans.tolist(), strict=True)):
            observed, reason = self._evaluate_row(self._space.decode(point), trial, span, task, entropy)
            if reason:
                failures[trial] = reason
                log(WARNING, "agent %s, trial %d failed: %s", self._agent, trial, reason)
            counts[i] = len(observed)
            if len(observed):
                with np.errstate(over="ignore"):  # squares of huge values are of no use to anybody
                    values[i], squares[i] = np.mean(observed), np.sum(np.square(observed))
        if query.repeats is None:
            return Outcome(points, values, trials, failures)
        return Outcome(points, values, trials, failures, counts, spans, squares)

    def _evaluate_row(
        self, config: dict[str, Any], trial: int, span: int, task: Task, entropy: int
    ) -> tuple[Array, str]:
        """Return the values of evaluating a configuration `span` times, and why the first failure failed."""
        observed, reason = [], ""
        at_once = span > 1 and can_repeat(self._objective)
        for k in range(1 if at_once else span):
            context = ObjectiveContext(
                self._agent,
                _partition(self._context),
                trial + k,
                task.round,
                generator(entropy, "agent", self._agent, "objective", trial + k),
                self._context.node_config,
                self._context.run_config,
            )
            try:
                if at_once:
                    return evaluate_repeatedly(self._objective, config, context, span), ""
                observed.append(evaluate(self._objective, config, context))
            except ObjectiveError as error:
                reason = reason or str(error)
        return np.array(observed, dtype=np.float64), reason

    def _disclosure(
        self, algorithm: Algorithm[Any], task: Task, notebook: Notebook, done: Outcome
    ) -> wire.Disclosure:
        if self._disclose == "none":
            return wire.Disclosure()
        everything = self._disclose == "trials" and int(np.sum(done.pulls)) == task.num_trials > 0
        best = algorithm.incumbent(notebook)
        point = algorithm.recommend(notebook) if algorithm.finishes else None
        return wire.Disclosure(done if everything else None, best, point)

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
                return _Memory(
                    study, values["entropy"], Notebook(self._space, history, arrays, values["passed"])
                )
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
            "passed": memory.notebook.passed,
        }
        self._context.state[STATE_KEY] = ConfigRecord(
            {"memory": freeze({**memory.notebook.arrays, **own}, values)}
        )


def _joined(outcomes: list[Outcome]) -> Outcome:
    """Return several outcomes of one task as one, a row per point in the order of first evaluations.

    Bandits return to a cell again and again; its evaluations within one task become one row.
    """
    points = np.concatenate([o.points for o in outcomes])
    _, first, row = np.unique(points, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.argsort(order)[row.reshape(-1)]
    spans = np.bincount(place, weights=np.concatenate([o.pulls for o in outcomes])).astype(np.int64)
    each = [np.isfinite(o.values).astype(np.int64) if o.counts is None else o.counts for o in outcomes]
    weights = np.concatenate(each)
    counts = np.bincount(place, weights=weights).astype(np.int64)
    values = np.nan_to_num(np.concatenate([o.values for o in outcomes]))
    with np.errstate(invalid="ignore"):
        means = np.bincount(place, weights=values * weights) / np.where(counts > 0, counts, np.nan)
    trials = outcomes[0].trials[0] + np.cumsum(spans) - spans
    reasons = {t: text for o in outcomes for t, text in o.failures.items()}
    at = {int(t): int(p) for t, p in zip(np.concatenate([o.trials for o in outcomes]), place, strict=True)}
    failures = {int(trials[at[t]]): reasons[t] for t in sorted(reasons, reverse=True)}  # the first one stays
    return Outcome(points[first[order]], means, trials, failures, counts, spans)


def _num_succeeded(outcome: Outcome) -> int:
    """Return how many evaluations gave a value."""
    counts = np.isfinite(outcome.values) if outcome.counts is None else outcome.counts
    return int(np.sum(counts))


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
