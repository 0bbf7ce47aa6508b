"""`client_app` makes a ClientApp that tunes an objective; `add_tuning` adds tuning to another ClientApp.

`message_api_mod` tunes with a `ClientApp(client_fn=...)`, which knows only Flower's older messages:

ClientApp(client_fn=lambda context: TuningAgent(f, space, context).to_client(), mods=[message_api_mod])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common import (
    EvaluateIns,
    FitIns,
    GetPropertiesIns,
    MessageTypeLegacy,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.compat.common import recorddict_compat as compat

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.aims import Aims, Limit
from fbo_flower.algorithms.requests import Failed, side_by_side
from fbo_flower.clients.agent import Prior, TuningAgent
from fbo_flower.clients.evaluator import Parallel, points_of
from fbo_flower.clients.objective import Objective, check_objective
from fbo_flower.clients.own_answer import OnFinish
from fbo_flower.clients.pruning import Pruning
from fbo_flower.clients.workers import pickled
from fbo_flower.errors import ConfigError, WireError, explains_names, kind_of
from fbo_flower.numerics.threads import single_thread
from fbo_flower.space.copies import own
from fbo_flower.space.space import SearchSpace
from fbo_flower.wire.codec import Packed
from fbo_flower.wire.flower_records import from_lists, from_records, to_lists, to_records

TRAIN = MessageType.TRAIN  # messages without an action of their own
DEFAULT_ACTION = "default"  # Flower's name for messages without an action
MAX_AGENTS = 20_000  # nodes whose agents an app keeps between messages


@explains_names
def client_app(
    objective: Objective,
    space: SearchSpace,
    *,
    seed: int | None = None,
    disclose: str | None = None,
    prior: Prior | None = None,
    minimize: bool = False,
    objectives: Mapping[str, str] | None = None,
    limits: Mapping[str, Limit] | None = None,
    reference: Mapping[str, float] | None = None,
    initial: Sequence[Mapping[str, Any]] = (),
    on_finish: OnFinish | None = None,
    num_parallel: int = 1,
    trial_timeout: float = 0.0,
    max_trials: int | None = None,
    participation: float | None = None,
    fixed: Mapping[str, object] | None = None,
    pruning: Pruning | str | None = None,
    disclose_curves: bool = False,
    algorithms: Sequence[type[Algorithm[Any]]] = (),
    mods: Sequence[Mod] = (),
) -> TuningApp:
    """Return a ClientApp that tunes `objective` over `space`.

    Evaluations run with one BLAS and OpenMP thread, so that runs can be repeated exactly. An objective that
    needs more threads sets its own `threadpoolctl.threadpool_limits`.

    Parameters
    ----------
    objective : `objective(config, context)` returns a float, larger is better unless `minimize`, or a dict of
        floats, one for each name in `objectives` and `limits`; `context` is an `ObjectiveContext`
    space : the search space; the server compares its digest with the other agents' at registration
    initial : known good configurations, which the agent evaluates as its first trials, in place of as many of
        the algorithm's. Pass `num_initial` to the strategy to keep the size of the random initial design
    num_parallel : evaluations at the same time, each in a process of its own
    trial_timeout : seconds that one evaluation may take before its process is killed; 0: any number. With one
        of these two the objective and what it holds must be picklable
    minimize : whether smaller values are better
    objectives : name -> "max" or "min", of one to three outputs; None: the objective returns one number
    limits : name -> the largest value that a configuration may have, or a text such as ">= 0.9"; the bounds
        do not leave the agent
    reference : name -> value of some of several objectives, from which improvement counts
    mods : of Flower, as of a `ClientApp`. What clips or noises models is not for tuning, see docs/privacy.md
    seed, disclose, prior, on_finish, max_trials, participation, fixed, pruning,
        disclose_curves, algorithms : see `TuningAgent`

    Raises
    ------
    ConfigError
        If an argument has the wrong type, the objective does not take two arguments, or it cannot be pickled
        and has to be.
    """
    check_objective(objective, space, "context")
    aims = Aims.of(minimize, objectives, limits, reference)
    points, prior, fixed, algorithms = points_of(initial, space), own(prior), own(fixed), own(algorithms)
    if Parallel(num_parallel, trial_timeout).needs_workers:
        pickled(objective)

    def agent(context: Context) -> TuningAgent:
        return TuningAgent(
            objective, space, context,
            seed=seed, disclose=disclose, prior=prior, aims=aims, initial=points, on_finish=on_finish,
            num_parallel=num_parallel, trial_timeout=trial_timeout, max_trials=max_trials,
            participation=participation, fixed=fixed, pruning=pruning, disclose_curves=disclose_curves,
            algorithms=algorithms,
        )  # fmt: skip

    # wrong arguments are refused here, not in the first task; nothing is opened
    agent(Context(0, 0, {"agent": "any", "journal": "any"}, RecordDict(), {}))
    return agent_app(agent, mods)


def add_tuning(
    app: ClientApp, objective: Objective, space: SearchSpace, *, action: str = "tune", **options: Any
) -> None:
    """Add tuning to an existing ClientApp; its own functions do not change.

    Parameters
    ----------
    app : a decorated ClientApp
    objective, space, options : see `client_app`
    action : name of the tuning messages; pass the same `action` to the strategy

    Raises
    ------
    ConfigError
        If an argument has the wrong type.
    ValueError
        If the app already has functions for this action, or was made with `client_fn`.
    """
    if not isinstance(app, ClientApp):
        raise ConfigError(
            f"app: expected a ClientApp, got {kind_of(app)}; call add_tuning(app, objective, space)"
        )
    route(app, client_app(objective, space, **options).agent, action)


def agent_app(agent: Callable[[Context], TuningAgent], mods: Sequence[Mod] = ()) -> TuningApp:
    """Return a ClientApp in which `agent(context)` answers every message."""
    return TuningApp(agent, mods)


class TuningApp(ClientApp):
    """A ClientApp in which `agent(context)` answers every message.

    An engine that holds the messages of many agents may have them answered together, see `answer_together`.
    """

    def __init__(self, agent: Callable[[Context], TuningAgent], mods: Sequence[Mod] = ()) -> None:
        if not isinstance(mods, Sequence) or not all(map(callable, mods)):
            raise ConfigError(f"mods: expected a list of Flower's mods, which are functions, got {mods!r}")
        super().__init__(mods=list(mods))
        self._make, self._has_mods = agent, bool(mods)
        self._agents: dict[int, tuple[Any, TuningAgent]] = {}  # node -> its settings and its agent
        route(self, self.agent)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_agents": {}}  # a worker makes its own

    def agent(self, context: Context) -> TuningAgent:
        """Return the agent of a node, which is kept until its settings or the run config change."""
        settings, kept = (context.node_config, context.run_config), self._agents.get(context.node_id)
        may_change = "secure_peers" in context.node_config  # a file, which its operator may edit meanwhile
        if kept is None or kept[0] != settings or may_change:
            kept = tuple(map(dict, settings)), self._make(context)
            if len(self._agents) >= MAX_AGENTS:
                self._agents.clear()
            self._agents[context.node_id] = kept
        return kept[1].at(context)

    def answer_together(
        self, batch: Sequence[tuple[Message, Context]], on_answer: Callable[[], object] = lambda: None
    ) -> list[Message | Exception]:
        """Return the replies to messages of different nodes, or the exception that an agent raised.

        The tasks of the TRAIN half-round are answered side by side: what their agents compute is stacked.
        Each reply is the one that the agent would give alone, bit for bit.

        Parameters
        ----------
        on_answer : called whenever an agent has done its task
        """
        replies: list[Any] = [None] * len(batch)
        waiting: dict[int, Callable[[], Packed]] = {}
        seen: dict[int, Any] = {}  # arrays that several messages share
        with single_thread():
            for number, (message, context) in enumerate(batch):
                try:
                    together = message.metadata.message_type == TRAIN and not self._has_mods
                    agent = self.agent(context) if together else None
                    if agent is not None and agent.can_wait and type(agent).fit is TuningAgent.fit:
                        waiting[number] = partial(agent.answer_in_turn, from_records(message.content, seen))
                    else:
                        replies[number] = self(message, context)
                        on_answer()
                except Exception as error:  # the agent's code may raise anything; the others go on
                    replies[number] = error
            for number, packed in zip(waiting, side_by_side(waiting.values(), on_answer), strict=True):
                if isinstance(packed, Failed):
                    replies[number] = packed.error
                else:
                    replies[number] = Message(to_records(packed), reply_to=batch[number][0])
        return replies


def route(app: ClientApp, agent: Callable[[Context], TuningAgent], action: str = DEFAULT_ACTION) -> None:
    """Register functions in `app` that pass the messages of an action to `agent(context)`."""

    @app.query(action)
    def query(message: Message, context: Context) -> Message:
        record = message.content.get("config")
        properties = agent(context).get_properties(dict(record) if isinstance(record, ConfigRecord) else {})
        return Message(RecordDict({"config": ConfigRecord(properties)}), reply_to=message)

    @app.train(action)
    def train(message: Message, context: Context) -> Message:
        arrays, _, scalars = agent(context).fit(*to_lists(from_records(message.content)))
        return Message(to_records(from_lists(arrays, scalars)), reply_to=message)

    @app.evaluate(action)
    def evaluate(message: Message, context: Context) -> Message:
        _, _, scalars = agent(context).evaluate(*to_lists(from_records(message.content)))
        return Message(to_records(from_lists([], scalars)), reply_to=message)


def message_api_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Give a tuning message to `get_properties`, `fit` or `evaluate` of a `NumPyClient`."""
    kind = message.metadata.message_type  # may end in an action, which a `client_fn` does not know
    if kind.split(".")[0] == MessageType.QUERY:
        record = message.content.get("config")
        config: Any = dict(record) if isinstance(record, ConfigRecord) else {}
        message.content = compat.getpropertiesins_to_recorddict(GetPropertiesIns(config))
        reply = _call(MessageTypeLegacy.GET_PROPERTIES, message, context, call_next)
        properties: Any = compat.recorddict_to_getpropertiesres(reply).properties
        return Message(RecordDict({"config": ConfigRecord(properties)}), reply_to=message)
    arrays, config = to_lists(from_records(message.content))
    parameters = ndarrays_to_parameters(cast(Any, arrays))
    if kind.split(".")[0] == MessageType.TRAIN:
        message.content = compat.fitins_to_recorddict(FitIns(parameters, config), False)
        fitted = compat.recorddict_to_fitres(_call(MessageType.TRAIN, message, context, call_next), False)
        packed = from_lists(parameters_to_ndarrays(fitted.parameters), cast(Any, fitted.metrics))
    else:
        message.content = compat.evaluateins_to_recorddict(EvaluateIns(parameters, config), False)
        evaluated = compat.recorddict_to_evaluateres(_call(MessageType.EVALUATE, message, context, call_next))
        packed = from_lists([], cast(Any, evaluated.metrics))
    return Message(to_records(packed), reply_to=message)


def _call(kind: str, message: Message, context: Context, call_next: ClientAppCallable) -> RecordDict:
    """Return the content of the reply to a message of another type; the message keeps its own."""
    own, message.metadata.message_type = message.metadata.message_type, kind
    try:
        reply = call_next(message, context)
    except EOFError as error:  # a message without arrays has one empty array in the older API
        remedy = "mods: expected mods that read arrays, such as arrays_size_mod, before message_api_mod"
        raise ConfigError(f"{remedy}, got one behind it, where it meets an array without data") from error
    else:
        if reply.has_error():  # a mod behind this one refuses the message
            raise WireError(f"message: expected an answer, got an error: {reply.error.reason}")
        return reply.content
    finally:
        message.metadata.message_type = own
