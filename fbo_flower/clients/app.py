"""`client_app`: a complete ClientApp from an objective and a search space; `add_tuning`: within another."""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fbo_flower.clients.agent import Prior, TuningAgent
from fbo_flower.clients.objective import Objective
from fbo_flower.errors import WireError
from fbo_flower.space.space import SearchSpace
from fbo_flower.wire.flower_records import from_records, to_records

DEFAULT_ACTION = "default"  # Flower's name for messages without one


def client_app(
    objective: Objective,
    space: SearchSpace,
    *,
    seed: int | None = None,
    disclose: str = "none",
    prior: Prior | None = None,
) -> ClientApp:
    """Return a ClientApp whose node tunes `objective` over `space`.

    Evaluations run with one BLAS and OpenMP thread, which makes runs repeat; an objective that wants more
    opens its own `threadpoolctl.threadpool_limits` around its work.

    Parameters
    ----------
    objective : `objective(config, context) -> float`, larger is better; `context` is an
        `ObjectiveContext`
    space : the same at every agent; the roll-call compares digests
    seed, disclose, prior : see `TuningAgent`
    """
    return agent_app(_maker(objective, space, seed, disclose, prior))


def add_tuning(
    app: ClientApp,
    objective: Objective,
    space: SearchSpace,
    *,
    action: str = "tune",
    seed: int | None = None,
    disclose: str = "none",
    prior: Prior | None = None,
) -> None:
    """Let a ClientApp that exists tune as well; its own functions stay as they are.

    Parameters
    ----------
    app : a decorated ClientApp
    objective, space, seed, disclose, prior : see `client_app`
    action : name of the messages for tuning; a strategy with the same `action` sends them

    Raises
    ------
    ValueError
        If the app has functions of that action already, or was made with `client_fn`.
    """
    route(app, _maker(objective, space, seed, disclose, prior), action)


def agent_app(agent: Callable[[Context], TuningAgent]) -> ClientApp:
    """Return a ClientApp whose node answers with the agent that is made for its context."""
    app = ClientApp()
    route(app, agent)
    return app


def route(app: ClientApp, agent: Callable[[Context], TuningAgent], action: str = DEFAULT_ACTION) -> None:
    """Let the agent that is made for a node's context answer the app's messages of an action."""

    @app.query(action)
    def query(message: Message, context: Context) -> Message:
        asked = message.content.get("config")
        properties = agent(context).get_properties(dict(asked) if isinstance(asked, ConfigRecord) else {})
        return Message(RecordDict({"config": ConfigRecord(properties)}), reply_to=message)

    @app.train(action)
    def train(message: Message, context: Context) -> Message:
        reply = agent(context).answer(from_records(message.content))
        return Message(to_records(reply), reply_to=message)

    @app.evaluate(action)
    def evaluate(message: Message, context: Context) -> Message:
        reply = agent(context).answer(from_records(message.content))
        if reply.arrays:
            raise WireError(f"evaluate: expected a report of scalars, got {', '.join(reply.arrays)}")
        return Message(to_records(reply), reply_to=message)


def _maker(
    objective: Objective, space: SearchSpace, seed: int | None, disclose: str, prior: Prior | None
) -> Callable[[Context], TuningAgent]:
    def agent(context: Context) -> TuningAgent:
        return TuningAgent(objective, space, context, seed=seed, disclose=disclose, prior=prior)

    return agent
