"""`TuningAgent`: one agent, as Flower's `NumPyClient`.

For each task the agent verifies the message, loads its state, runs the task, stores the result, and returns
the algorithm's report. Every task comes through `fit` or `evaluate`, in a decorated ClientApp, in a
`client_fn` and in a notebook.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import closing
from copy import copy
from dataclasses import replace
from functools import partial
from logging import DEBUG, INFO, WARNING
from typing import Any, Self

from flwr.app import Context
from flwr.client import NumPyClient
from flwr.common.logger import FLOWER_LOGGER, log

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.protocol import answers_in_part
from fbo_flower.algorithms.records import AgentState, AnyArray, Array, Scalar, Trials
from fbo_flower.algorithms.registry import APP, SIMULATION, check_aims, register
from fbo_flower.algorithms.run_task import TaskResult, run_task, seen_by
from fbo_flower.clients import guards
from fbo_flower.clients.asking import Asked, note_end, with_known
from fbo_flower.clients.evaluator import (
    EvaluationCache,
    Evaluator,
    ObjectiveEvaluator,
    Parallel,
    TaskContext,
)
from fbo_flower.clients.memory import (
    Memory,
    agent_state_from_bytes,
    agent_state_to_bytes,
    check_journal,
    journal_path,
    open_memory,
)
from fbo_flower.clients.objective import Objective
from fbo_flower.clients.operator import BudgetSpentError, Operator, agent_id, in_simulation, node_info
from fbo_flower.clients.own_answer import OnFinish, OwnAnswer, answer_at_end, call_on_finish
from fbo_flower.clients.pruning import FEDERATED, CurveBook, Pruning
from fbo_flower.errors import ConfigError, HookError, WireError, WrongTypeError, kind_of, printable
from fbo_flower.numerics.seeding import fresh_entropy
from fbo_flower.numerics.threads import single_thread
from fbo_flower.space.checks import check_integer
from fbo_flower.space.copies import own
from fbo_flower.space.held import HeldSpace, held_space
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage import ledger
from fbo_flower.storage.agent_journal import AgentJournal
from fbo_flower.storage.files import dumps, loads, task_key
from fbo_flower.wire.checks import check_names
from fbo_flower.wire.codec import POOLED, checked_summary
from fbo_flower.wire.flower_records import from_lists, to_lists
from fbo_flower.wire.protections import check_unprotected

Prior = Mapping[str, tuple[Array, Array | Mapping[str, Array]]]


class TuningAgent(NumPyClient):
    """An agent that evaluates an objective on its own data.

    Parameters
    ----------
    objective : `objective(config, context)` returns a float, or a dict of floats, one for each name in
        `aims`
    space : the search space, the same at every agent
    context : Flower's context of this node. Its `node_config` holds the agent's id (`agent`, else
        `partition-id`), and optionally `role`, the settings in `Operator`, and `journal`, the file of the
        agent's memory. Without `journal` the memory is in Flower's `state` and is lost with it
    seed : seed of the agent's random numbers. None, for devices: drawn on the device, so that the server
        does not know it. Simulations pass the study's seed, so that runs can be repeated
    disclose : what the agent sends in addition to the algorithm's report: "none", "incumbent" (its best value
        so far) or "trials" (all points and values). None: "none". `disclose` in `node_config` overrides it.
        Leave the choice to the operators unless nobody owns the data
    prior : agent -> `(points (n, D), values (n,))` observed before this study; values of several outputs are
        a dict, name -> `(n,)`
    aims : what the objective returns, and whether larger or smaller is better; `Aims.of(minimize=True)` for a
        loss. The algorithm gets numbers of which larger is better; answers, logs and studies show them as
        they are. The server learns the names of limits, not the bounds. `limits` in `node_config`, such as
        "latency_ms <= 15", replaces bounds. Those of the first task of a study hold until its end. `private`
        in `node_config`, such as "latency_ms, watts", names outputs whose values do not leave the agent
    initial : `(k, D)`, points that are evaluated as the agent's first k trials of a study, in place of those
        that the algorithm asks for. None: none
    journals : directory for the journals of agents without `journal` in `node_config`; None: their memory is
        in Flower's `state`
    on_finish : `on_finish(answer, context)` is called once at the agent when the study has ended, with the
        agent's `OwnAnswer` and Flower's context of the node, for instance to retrain and save a model. It is
        not called if no evaluation succeeded. An exception in it is logged and changes nothing else
    chosen_by : who set `disclose`, for ledgers and reports
    num_parallel, trial_timeout : see `Parallel`; `node_config` overrides them
    max_trials : the agent's budget: most evaluations in all studies together. `max_trials` in `node_config`
        overrides it; None: no limit
    participation : share of the rounds in which the agent gets tasks. `participation` in `node_config`
        overrides it; None: all rounds
    fixed : name -> value of the parameters that this agent does not tune. The server learns their names, not
        the values. `fixed` in `node_config`, such as "depth=3, kernel=rbf", replaces it; None: none
    pruning : when `context.should_stop()` is true, a `Pruning` or the name of its rule. `pruning` in
        `node_config` names another rule; None: `Pruning()`, the median of the agent's own trials
    disclose_curves : whether the agent sends medians of its learning curves to a server that pools them.
        `disclose_curves` in `node_config` overrides it
    algorithms : classes of your own that no installed package registers, and that the server may ask for

    Raises
    ------
    ConfigError
        If the node has no id, a setting in `node_config` is unknown or out of bounds, or its operator sets a
        limit without a `journal` (an agent without one forgets what it has spent).
    """

    def __init__(
        self,
        objective: Objective,
        space: SearchSpace,
        context: Context,
        *,
        seed: int | None = None,
        disclose: str | None = None,
        prior: Prior | None = None,
        aims: Aims = NUMBER,
        initial: Array | None = None,
        journals: str | os.PathLike[str] | None = None,
        on_finish: OnFinish | None = None,
        chosen_by: str = APP,
        num_parallel: int = 1,
        trial_timeout: float = 0.0,
        max_trials: int | None = None,
        participation: float | None = None,
        fixed: Mapping[str, object] | None = None,
        pruning: Pruning | str | None = None,
        disclose_curves: bool = False,
        algorithms: Sequence[type[Algorithm[Any]]] = (),
    ) -> None:
        if not isinstance(algorithms, Sequence):
            raise ConfigError(f"algorithms: expected a list of classes, got {kind_of(algorithms)}")
        for kind in algorithms:
            register(kind)
        self._objective = objective
        aims = aims.with_limits(str(context.node_config.get("limits", "")) or None)
        self._aims = aims.keeping(str(context.node_config.get("private", "")) or aims.private)
        self._is_asked = isinstance(objective, Asked)  # by its site
        self._space = space  # the shared one
        self._own_space = held_space(space, str(context.node_config.get("fixed", "")) or fixed)
        self._context = context
        self._partition = int(context.node_config.get("partition-id", -1))  # of a simulated data set
        self._seed = None if seed is None else check_integer("seed", seed, 0)
        if not isinstance(prior, Mapping | None):
            raise ConfigError(f"prior: expected a dict, agent -> observations, got {kind_of(prior)}")
        self._initial = own(initial)
        budgets = {"max_trials": max_trials, "participation": participation}
        self._operator = Operator.read(
            context.node_config, disclose, chosen_by, disclose_curves=disclose_curves, **budgets
        )
        if (
            self._aims.private
            and self._operator.disclose != "none"
            and self._operator.chosen_by != SIMULATION
        ):
            raise ConfigError(
                f"disclose: expected 'none' together with private outputs ({', '.join(self._aims.private)}), "
                f"got {self._operator.disclose!r}; remove one of them"
            )
        self._pruning = Pruning.read(context.node_config, pruning)
        self._parallel = Parallel.read(context.node_config, Parallel(num_parallel, trial_timeout))
        self._agent = agent_id(context)
        self._prior = own((prior or {}).get(self._agent))
        self._journal = journal_path(context, self._agent, journals)
        self.can_wait = self._journal is None  # it may work together with others: it holds no file open
        self._on_finish = on_finish
        self._terms: dict[tuple[str, str, str], guards.Terms] = {}  # of the last study
        if self._operator.limits:
            check_journal(self._durable, ", ".join(self._operator.limits))

    def at(self, context: Context) -> Self:
        """Return this agent with the memory in a context of its node, which may come anew."""
        if context.state is self._context.state:
            return self
        agent = copy(self)
        agent._context = replace(self._context, run_id=context.run_id, state=context.state)
        return agent

    # -- Flower's interface --------------------------------------------------------------------

    def get_properties(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return this agent's registration: its id, search space and versions.

        A config with the entry `end`, the id of a study, says that this study has ended: the agent logs its
        own answer, calls `on_finish`, and returns nothing.
        """
        check_unprotected("a tuning ClientApp")
        check_names(config, ("end", "key"), "query")
        if isinstance(study := config.get("end"), str):
            if self._is_asked and (path := self._context.node_config.get("journal")):
                note_end(str(path), study)
            with closing(open_memory(self._context, self._agent, self._journal)) as memory:
                answer = answer_at_end(memory, self._agent, study, self._space, self._judged, self._aims)
            if answer is not None:  # the journal is closed: `on_finish` may read it, and may take long
                self._announce(answer)
            return {}
        properties: dict[str, Any] = {
            "schema": wire.SCHEMA_VERSION,
            "agent": self._agent,
            "space": self._space.to_json(),
            "digest": self._space.digest,
            "disclose": self._operator.disclose,
            "disclose_by": self._operator.chosen_by,
            **node_info(self._context),
        }
        own, share = self._own_space, float(self._operator.participation)
        with closing(open_memory(self._context, self._agent, self._journal)) as memory:
            further = {  # what is empty or false is not sent
                "role": str(self._context.node_config.get("role", "")),
                "fixed": list(own.fixed) if isinstance(own, HeldSpace) else [],
                "aims": self._aims.to_json() if self._aims != NUMBER else "",
                "private": list(self._aims.private),
                "participation": share if share < 1.0 else None,
                "end": self._wants_end,  # asks the server to say when the study has ended
                # it understands tasks with pooled curves
                "curves": self._operator.disclose_curves or self._pruning.rule == FEDERATED,
                "spent": self._operator.is_spent(memory),
            }
            properties |= {name: said for name, said in further.items() if said}
            if config.get("key") is True:
                check_journal(self._durable, "secure sums")
                properties["key"] = guards.own_card(memory).hex()
            chosen = f"{self._operator.disclose} (chosen by: {self._operator.chosen_by})"
            if isinstance(memory, AgentJournal):
                memory.enter_registration(["incarnation", *properties], chosen)
            return {"incarnation": memory.incarnation, **properties}

    def fit(
        self, parameters: list[AnyArray], config: dict[str, Scalar]
    ) -> tuple[list[AnyArray], int, dict[str, Scalar]]:
        """Run a task of the TRAIN half-round or of a final exchange, and return the report.

        Returns
        -------
        The report's arrays, its number of trials, and its scalars.

        Raises
        ------
        WireError, ConfigError
            If the task is malformed or not for this agent. Nothing was evaluated.
        """
        arrays, scalars = to_lists(self.answer(from_lists(parameters, config)))
        return arrays, int(scalars.get("num-trials", 0)), scalars

    def evaluate(
        self, parameters: list[AnyArray], config: dict[str, Scalar]
    ) -> tuple[float, int, dict[str, Scalar]]:
        """Run a task of the EVALUATE half-round; Flower returns no arrays from it."""
        reply = self.answer(from_lists(parameters, config))
        if reply.arrays:
            raise WireError(f"evaluate: expected a report of scalars, got {', '.join(reply.arrays)}")
        scalars = to_lists(reply)[1]
        return 0.0, int(scalars.get("num-trials", 0)), scalars

    # -- one task ------------------------------------------------------------------------------

    def answer(self, message: wire.Packed) -> wire.Packed:
        """Verify and run a task, store the result, and return the report.

        A task that was answered before gets the stored report. A task that was interrupted continues:
        evaluations in the journal are not repeated. A task beyond the agent's budget is declined.

        Raises
        ------
        WireError, ConfigError
            If the task is malformed or not for this agent. Nothing was evaluated.
        """
        with single_thread():
            return self.answer_in_turn(message)

    def answer_in_turn(self, message: wire.Packed) -> wire.Packed:
        """Do what `answer` does, where agents work side by side within one block of `single_thread()`."""
        asked = self._verify(message)
        algorithm, study, operator = asked.terms.algorithm, asked.envelope.study, self._operator
        with closing(open_memory(self._context, self._agent, self._journal)) as memory:
            journal = memory if isinstance(memory, AgentJournal) else None
            stored = memory.report(study, asked.report_key)
            if stored is not None:
                arrays, scalars = loads(stored)
                reply = wire.Packed(arrays, scalars | {"round": asked.task.round})
                if journal is not None:
                    sent = ledger.entries(*reply, algorithm.name, "the same answer", True, operator.chosen_by)
                    journal.enter_sent(sent)
                return reply
            try:
                context, agent_state, evaluate, answered = self._prepare(memory, asked)
                parallel, noise = self._parallel, None if context.simulated else secrets.randbelow
                at_once = parallel.num_parallel if journal is None else parallel.batch_size(context)
                result = run_task(
                    algorithm, context.task, agent_state, evaluate, context.draws, evaluate.arrays, noise,
                    at_once, asked.terms.guard,
                )  # fmt: skip
            except BudgetSpentError:
                return wire.decline(message)
            except WrongTypeError as error:
                if operator.disclose == "trials":
                    raise  # the server's log has it
                log(WARNING, "agent %s: %s", self._agent, error)
                raise WrongTypeError(error.kind, wanted=error.wanted) from None  # the server learns no value
            reply = self._reply(asked, result, context)
            ends = result.agent_state.has_ended or (operator.max_trials and operator.is_spent(memory))
            if context.task.num_trials and ends:
                reply.config["spent"] = True
            sent = []
            if journal is not None:
                source = seen_by(result.agent_state)
                sent = ledger.entries(*reply, algorithm.name, source, False, operator.chosen_by)
            state, report = agent_state_to_bytes(result.agent_state), dumps(*reply)
            memory.finish(study, asked.report_key, asked.task.round, state, report, sent, answered)
            return reply

    def _verify(self, message: wire.Packed) -> guards.VerifiedTask:
        """Return the task in a message, if it is valid, for this agent, and the agent takes part in it."""
        envelope = wire.decode_envelope(message.config)
        if envelope.agent != self._agent:
            raise WireError(f"agent: expected a task for {self._agent!r}, got one for {envelope.agent!r}")
        if envelope.space != self._space.digest:
            raise WireError(f"space: expected digest {self._space.digest}, got {envelope.space}")
        named = envelope.study, envelope.algorithm, envelope.options
        if (terms := self._terms.get(named)) is None:
            terms = guards.terms_of(envelope.algorithm, envelope.options, self._space)
            self._admit(terms.algorithm)
            if terms.guard is not None:
                check_journal(self._durable, "secure sums")
            elif terms.has_noise:
                check_journal(self._durable, "noise of the agent's own")
            self._terms.clear()
            if len(envelope.options) <= guards.LONGEST:
                self._terms[named] = terms
        arrays = dict(message.arrays)
        others = checked_summary(POOLED, arrays.pop(POOLED)) if POOLED in arrays else None
        task = wire.decode_task(message._replace(arrays=arrays), terms.tasks)
        key = report_key = task_key(task)
        if not terms.has_noise:  # otherwise another answer would have other noise
            # the operator may have changed `disclose` since the task was answered
            report_key += f" {self._operator.disclose}{' curves' if self._operator.disclose_curves else ''}"
        return guards.VerifiedTask(envelope, terms, task, key, report_key, others)

    def _prepare(
        self, memory: Memory, asked: guards.VerifiedTask
    ) -> tuple[TaskContext, AgentState, Evaluator, tuple[str, str]]:
        """Check a new task against what the agent remembers, count it, and begin a new study in its memory.

        Returns
        -------
        The task, perhaps with fewer trials, and what belongs to it; the agent's state before its session;
        what evaluates its queries; the name of the work that it asks for, and the checksum of what it asks.
        """
        algorithm, guard, task = asked.terms.algorithm, asked.terms.guard, asked.task
        operator, study = self._operator, asked.envelope.study
        known = memory.study(study)
        if known is None:
            entropy, agent_state = self._first_state()
        else:
            # an interrupted task must propose the same again, so the bounds of a study stay
            aims = Aims.from_json(known.aims).keeping(self._aims.private) if known.aims else self._aims
            entropy, agent_state = known.entropy, agent_state_from_bytes(known.state, self._own_space, aims)
        work, key = guards.check_once(memory, known, asked, agent_state)
        if operator.max_studies and known is None:
            operator.check_studies(memory)
        charge = f"{study} {key}"
        if self._is_asked and (path := str(self._context.node_config.get("journal", ""))):
            num_prior = len(self._first_state()[1].history)
            agent_state = with_known(agent_state, memory, study, key, path, num_prior)
        if operator.max_trials and answers_in_part(algorithm):
            task = operator.allowed_part(memory, charge, task)
        if guard is not None:
            operator.check_peers(guard.peers(task))
            agent_state = agent_state.write(**guards.identity(memory, study))
        accepted = algorithm.accept(task, agent_state)
        if guard is not None:
            accepted = guard.admit(task, accepted)
        context = TaskContext(
            self._agent, study, self._partition, task, key, entropy, memory,
            self._context.node_config, self._context.run_config, self._seed is not None,
            partial(CurveBook.read, agent_state.arrays, self._pruning, asked.others),
        )  # fmt: skip
        if isinstance(memory, AgentJournal):
            context.stored.extend(memory.evaluations(study, key))
        evaluate = self._evaluator(context, algorithm, accepted)
        if operator.max_trials:  # what follows is done, so it counts
            operator.charge(memory, charge, task)
        if operator.max_epsilon:
            operator.spend(memory, f"{study} {asked.key}", algorithm, task, self._space)
        if known is None:
            space, aims = self._space.to_json(), agent_state.aims
            bounds = aims.to_json(bounds=True) if aims != NUMBER else ""
            state = agent_state_to_bytes(agent_state)
            memory.begin(study, entropy, state, asked.terms.pinned, space, bounds)
        return context, accepted, evaluate, (work, key)

    @property
    def _durable(self) -> bool:
        """Whether the agent's memory outlives its process, or the agent is simulated and promises nothing."""
        return not self.can_wait or self._seed is not None or in_simulation()

    def _admit(self, algorithm: Algorithm[Any]) -> None:
        """Raise ConfigError if this agent does not take part in the algorithm."""
        self._operator.admit(algorithm)
        check_aims(algorithm, self._aims)
        guards.check_subset(algorithm, self._own_space)

    def _evaluator(
        self, context: TaskContext, algorithm: Algorithm[Any], agent_state: AgentState
    ) -> Evaluator:
        """Return what evaluates the queries of a task; WireError if this agent does no such task."""
        repeats = not getattr(algorithm, "deterministic", False)  # an option of bandits
        cache = None if repeats else EvaluationCache.read(agent_state.arrays)
        return ObjectiveEvaluator(
            self._objective, self._own_space, context, cache, self._parallel, self._initial, agent_state.aims
        )

    def _reply(self, asked: guards.VerifiedTask, result: TaskResult, context: TaskContext) -> wire.Packed:
        """Return the message that leaves this agent, and log the names of its contents."""
        operator, algorithm, task = self._operator, asked.terms.algorithm, context.task
        report = guards.consented(algorithm, result.report, operator.disclose)
        own = report.arrays
        if asked.terms.guard is not None:
            own = {n: array for n, array in own.items() if not n.startswith("secure.")}
        try:
            wire.checked_arrays(own, asked.terms.reports.arrays)
        except WireError as error:
            large = error.reason in {"bounds", "not-finite"}
            hint = "; let the objective return smaller values" if large else ""
            raise HookError(f"{algorithm.name}: summarise: {error}{hint}") from error
        disclosure = guards.disclosure_of(operator.disclose, algorithm, task, result)
        if operator.disclose_curves and asked.others is not None and task.num_trials:
            disclosure = replace(disclosure, curves=context.book.summary())
        reply = wire.encode_report(report, task, asked.envelope, disclosure)
        if FLOWER_LOGGER.isEnabledFor(DEBUG):
            arrays = [f"{name} {array.shape}" for name, array in report.arrays.items()]
            told: dict[str, object] = {"its trials": disclosure.trials, "curves": disclosure.curves}
            if disclosure.trials is None:
                told["its best value"] = disclosure.incumbent
            disclosed = [what for what, content in told.items() if content is not None]
            sends = ", ".join([*arrays, *report.values, *disclosed]) or "only the number of trials"
            log(DEBUG, "agent %s, round %d: sends %s", self._agent, task.round, sends)
        return reply

    # -- the end of a study --------------------------------------------------------------------

    @property
    def _wants_end(self) -> bool:
        """Whether the server should say when the study has ended; a simulated agent logs nothing then."""
        return self._is_asked or self._seed is None or self._on_finish is not None

    def _judged(self, agent_state: AgentState) -> int:
        """Return the number of evaluations without a trial, as of a site that judges models at the end."""
        return 0

    def _announce(self, answer: OwnAnswer) -> None:
        """Log the agent's own answer and pass it to the app."""
        level = WARNING if answer.config is None else INFO
        log(level, "agent %s: study %s has ended: %s", self._agent, printable(answer.study), answer)
        if answer.config is not None:
            call_on_finish(answer, self._on_finish, self._context)

    def _first_state(self) -> tuple[int, AgentState]:
        """Return this agent's seed and state in a new study, which starts with the prior observations."""
        history = Trials.empty(self._space.dimension)
        if self._prior is not None:
            points, observed = self._prior
            history = Trials.prior(self._space.snap(points), *self._aims.observed(observed))
        agent_state = AgentState(self._own_space, history, aims=self._aims)
        return fresh_entropy() if self._seed is None else self._seed, agent_state
