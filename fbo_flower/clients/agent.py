"""`TuningAgent`: one participant, as Flower's `NumPyClient`.

It checks what it is asked, evaluates the user's objective on its own data, remembers, and answers
with what the algorithm lets travel. `fit` and `evaluate` take and return the packed form of
`fbo_flower.wire`, so one class serves a decorated ClientApp, `client_fn` and a unit test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from logging import DEBUG, WARNING
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.common.logger import log

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm, make_algorithm
from fbo_flower.algorithms.records import (
    AgentState,
    AnyArray,
    Array,
    History,
    Outcome,
    Phase,
    Query,
    Report,
    Scalar,
    Task,
)
from fbo_flower.clients.agent_state_io import (
    agent_state_from_bytes,
    agent_state_to_bytes,
    packed_from_bytes,
    packed_to_bytes,
)
from fbo_flower.clients.evaluation_cache import EvaluationCache
from fbo_flower.clients.evaluation_replay import EvaluationReplay
from fbo_flower.clients.memory import Memory, open_memory
from fbo_flower.clients.node_info import node_info
from fbo_flower.clients.objective import (
    Objective,
    ObjectiveContext,
    can_repeat,
    evaluate,
    evaluate_repeatedly,
)
from fbo_flower.clients.operator import Operator
from fbo_flower.clients.outcomes import joined, num_succeeded, seen_by
from fbo_flower.clients.privacy_budget import spend
from fbo_flower.clients.secagg_keys import identity, own_key
from fbo_flower.errors import ConfigError, ObjectiveError, WireError
from fbo_flower.numerics.seeding import fresh_entropy, generator
from fbo_flower.numerics.threads import single_thread
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage import ledger
from fbo_flower.storage.agent_journal import Evaluation, task_key

Prior = Mapping[str, tuple[Array, Array]]


class TuningAgent(NumPyClient):
    """An agent that tunes on its own data.

    Parameters
    ----------
    objective : `objective(config, context) -> float`, larger is better
    space : the search space, the same at every agent
    context : Flower's context of this node; `node_config` names the agent (`agent`, else
        `partition-id`) and may set `role`, what `Operator` lists, and `journal`, the file of its memory;
        without one `state` holds it, for as long as Flower does
    seed : seed of the agent's draws. None (on devices): entropy of its own, which the server cannot
        know. In simulation the study's seed, so that runs repeat
    disclose : what may leave beyond the algorithm's report: "none", "incumbent" (the best value so
        far) or "trials" (all points and values). The operator's `node_config` comes first
    prior : agent -> `(points (n, D), values (n,))` observed before this study
    journals : directory for the journals of agents whose `node_config` names none; None: what they remember
        stays in Flower's state

    Raises
    ------
    ConfigError
        If the node has no name, or a setting of its operator cannot be.
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
        journals: str | os.PathLike[str] | None = None,
    ) -> None:
        self._objective = objective
        self._space = space
        self._context = context
        self._seed = seed
        self._prior = prior or {}
        self._operator = Operator.read(context.node_config, disclose)
        self._agent = agent_id(context)
        self._journals = journals
        self._memory: Memory  # of the message at hand
        self._replay: EvaluationReplay  # of the task at hand
        self._cache: EvaluationCache | None = None  # of the task at hand, where values are reused

    # -- Flower's interface --------------------------------------------------------------------

    def get_properties(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the roll-call: who this agent is and what it searches."""
        said: dict[str, Any] = {
            "schema": wire.SCHEMA_VERSION,
            "agent": self._agent,
            "space": self._space.to_json(),
            "digest": self._space.digest,
            "role": str(self._context.node_config.get("role", "")),
            "disclose": self._operator.disclose,
            **node_info(self._context),
        }
        with closing(self._open_memory()) as memory:
            if config.get("key") is True:
                said["key"] = own_key(memory)[1].hex()
            memory.enter_roll_call(["incarnation", *said])
            return {"incarnation": memory.incarnation, **said}

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
            return self._remembering(algorithm, task, envelope)

    def _remembering(
        self, algorithm: Algorithm[Any], task: Task, envelope: wire.Envelope
    ) -> tuple[list[AnyArray], dict[str, Scalar], Task]:
        """Answer a task once: what was answered is answered again, what was evaluated stays evaluated."""
        study, key = envelope.study, task_key(task)
        with closing(self._open_memory()) as memory:
            self._memory = memory
            answer = f"{key} {self._operator.disclose}"  # an operator may since have chosen to disclose less
            answered = memory.report(study, answer)
            if answered is not None:
                packed = wire.readdress(packed_from_bytes(answered), task)
                memory.enter_sent(ledger.entries(*packed, algorithm.name, "the same answer", again=True))
                return *packed, task
            entropy, agent_state = self._recall(memory, study)
            if task.trial > agent_state.next_trial and not algorithm.skips:
                raise WireError(f"trial: expected at most {agent_state.next_trial}, got {task.trial}")
            self._admit(algorithm, task, agent_state)
            own = identity(memory, study) if algorithm.needs_keys else {}
            accepted = algorithm.accept(task, agent_state.write(**own))
            work = task_key(algorithm.work(task))
            self._operator.charge(memory, f"{study} {work}", task)
            spend(memory, float(self._operator.max_epsilon), study, key, algorithm, task, self._space)
            memory.begin(
                study, entropy, agent_state_to_bytes(agent_state)
            )  # once; later calls change nothing
            agent_state = accepted
            if task.num_trials and task.trial > agent_state.next_trial:
                agent_state = agent_state.skip_to(task.trial)
            self._cache = EvaluationCache.read(agent_state.arrays) if algorithm.reuses_values() else None
            self._replay = EvaluationReplay(memory, study, work)
            agent_state, outcomes = self._work(algorithm, task, agent_state, entropy)
            if self._cache is not None:
                agent_state = agent_state.write(**self._cache.arrays(self._space.dimension))
            packed = self._report(algorithm, task, envelope, agent_state, outcomes, entropy)
            sent = ledger.entries(*packed, algorithm.name, seen_by(agent_state))
            kept = agent_state_to_bytes(agent_state), packed_to_bytes(packed)
            memory.finish(study, answer, task.round, *kept, sent)
        return *packed, task

    def _report(
        self,
        algorithm: Algorithm[Any],
        task: Task,
        envelope: wire.Envelope,
        agent_state: AgentState,
        outcomes: list[Outcome],
        entropy: int,
    ) -> wire.Packed:
        """Return exactly what leaves this agent."""
        rng = generator(
            entropy, "agent", self._agent, "summarise", str(task.phase), task.trial, task.num_trials
        )
        arrays = algorithm.summarise(task, agent_state, rng)
        kept = agent_state.history.select(task.trial, task.end)
        done = kept if len(kept.trials) or not outcomes else joined(outcomes)
        num_failed = int(np.sum(done.pulls)) - num_succeeded(done) if task.num_trials else 0
        report = Report(
            task.trial, task.num_trials, num_failed, arrays, algorithm.report_metrics(task, agent_state)
        )
        told = (
            "incumbent"
            if (self._operator.disclose, task.phase) == ("trials", Phase.EVALUATE)
            else self._operator.disclose
        )
        log(DEBUG, "agent %s, round %d: sends %s", self._agent, task.round, _describe(report, told))
        disclosure = self._disclosure(algorithm, task, agent_state, done)
        return wire.pack_report(report, task, envelope, disclosure)

    def _admit(self, algorithm: Algorithm[Any], task: Task, agent_state: AgentState) -> None:
        """Raise ConfigError or WireError unless this agent takes part in such tasks."""
        self._operator.admit(algorithm)

    def _work(
        self, algorithm: Algorithm[Any], task: Task, agent_state: AgentState, entropy: int
    ) -> tuple[AgentState, list[Outcome]]:
        """Evaluate until the task is done. The draws of a trial depend on its id alone."""
        outcomes: list[Outcome] = []
        session = algorithm.session(task, agent_state)
        if session is not None:
            trial = agent_state.next_trial
            while (query := session.ask()) is not None:
                outcomes.append(self._evaluate(query, trial, task, entropy))
                session.tell(outcomes[-1])
                trial = outcomes[-1].end
            return session.close(), outcomes
        while True:
            trial = agent_state.next_trial
            rng = generator(entropy, "agent", self._agent, "propose", str(task.phase), trial)
            query = algorithm.propose(task, agent_state, rng)
            if query is None:
                return agent_state, outcomes
            outcome = self._evaluate(query, trial, task, entropy)
            rng = generator(entropy, "agent", self._agent, "learn", str(task.phase), trial)
            agent_state = algorithm.learn(task, agent_state, outcome, rng)
            outcomes.append(outcome)

    def _evaluate(self, query: Query, first_trial: int, task: Task, entropy: int) -> Outcome:
        points = self._space.snap(query.points)
        spans = np.ones(len(points), dtype=np.int64) if query.repeats is None else query.repeats
        trials = first_trial + np.cumsum(spans) - spans
        values, squares = np.full(len(points), np.nan), np.zeros(len(points))
        counts, failures = np.zeros(len(points), dtype=np.int64), {}
        for i, (point, trial, span) in enumerate(zip(points, trials.tolist(), spans.tolist(), strict=True)):
            row = self._replay.take(trial, point, span)
            if row is None:
                row = self._evaluate_row(point, trial, span, task, entropy)
                self._replay.enter(row)
            elif self._cache is not None:
                self._cache.recall(point, row.value)
            if row.failure:
                failures[trial] = row.failure
                log(WARNING, "agent %s, trial %d failed: %s", self._agent, trial, row.failure)
            values[i], counts[i], squares[i] = row.value, row.count, row.square
        if query.repeats is None:
            return Outcome(points, values, trials, failures)
        return Outcome(points, values, trials, failures, counts, spans, squares)

    def _evaluate_row(self, point: Array, trial: int, span: int, task: Task, entropy: int) -> Evaluation:
        row = partial(self._observe, self._space.decode(point), trial, task=task, entropy=entropy)
        if self._cache is None:
            observed, reason = row(span)
        else:
            observed, reason = self._cache.repeat(point, span, partial(row, 1))
        if len(observed) == 0:
            return Evaluation(trial, point, float("nan"), 0, span, 0.0, reason)
        with np.errstate(over="ignore"):  # squares of huge values are of no use to anybody
            value, square = float(np.mean(observed)) + 0.0, float(np.sum(np.square(observed)))  # no -0.0
        return Evaluation(trial, point, value, len(observed), span, square, reason)

    def _observe(
        self, config: dict[str, Any], trial: int, span: int, task: Task, entropy: int
    ) -> tuple[Array, str]:
        """Return the values of evaluating a configuration `span` times, and why the first failure failed."""
        observed, reason = [], ""
        at_once = span > 1 and can_repeat(self._objective)
        for k in range(1 if at_once else span):
            context = self._objective_context(trial + k, task, entropy)
            try:
                if at_once:
                    return evaluate_repeatedly(self._objective, config, context, span), ""
                observed.append(evaluate(self._objective, config, context))
            except ObjectiveError as error:
                reason = reason or str(error)
        return np.array(observed, dtype=np.float64), reason

    def _objective_context(self, trial: int, task: Task, entropy: int) -> ObjectiveContext:
        return ObjectiveContext(
            self._agent,
            _partition(self._context),
            trial,
            task.round,
            generator(entropy, "agent", self._agent, "objective", trial),
            self._context.node_config,
            self._context.run_config,
        )

    def _disclosure(
        self, algorithm: Algorithm[Any], task: Task, agent_state: AgentState, done: Outcome
    ) -> wire.Disclosure:
        if self._operator.disclose == "none":
            return wire.Disclosure()
        best = algorithm.incumbent(agent_state)
        if task.phase is Phase.EVALUATE:  # Flower lets no arrays back
            return wire.Disclosure(incumbent=best)
        everything = self._operator.disclose == "trials" and int(np.sum(done.pulls)) == task.num_trials > 0
        point = algorithm.recommend(agent_state) if algorithm.finishes else None
        return wire.Disclosure(done if everything else None, best, point)

    # -- memory --------------------------------------------------------------------------------

    def _open_memory(self) -> Memory:
        return open_memory(self._context, self._agent, self._journals)

    def _recall(self, memory: Memory, study: str) -> tuple[int, AgentState]:
        """Return this agent's entropy and state in a study; a new study starts with a new state."""
        known = memory.study(study)
        if known is not None:
            entropy, data = known
            return entropy, agent_state_from_bytes(data, self._space)
        points, observed = self._prior.get(self._agent, (np.empty((0, self._space.dimension)), np.empty(0)))
        history = History.prior(self._space.snap(points), np.asarray(observed, dtype=np.float64))
        return fresh_entropy() if self._seed is None else self._seed, AgentState(self._space, history)


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


def _describe(report: Report, disclose: str) -> str:
    named = [f"{name} {array.shape}" for name, array in report.arrays.items()] + list(report.values)
    extra = {"none": [], "incumbent": ["its best value"], "trials": ["its trials"]}[disclose]
    return ", ".join(named + extra) or "nothing but the number of trials"
