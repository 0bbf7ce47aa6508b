"""The agents of the bundled Flower app: `flwr run .` tunes one of `PROBLEMS` over Flower's nodes.

The bundled problems use public data. Therefore these agents take their seed from the run config, so that runs
can be repeated bit for bit, and disclose their trials, so that the server can draw them. Your own app does
neither by default (see `clients.client_app`), and an operator can still set `disclose = "none"` in
`node_config`.
"""

from __future__ import annotations

from flwr.app import Context

from fbo_flower.app.config import AppConfig
from fbo_flower.clients.agent import TuningAgent
from fbo_flower.clients.app import agent_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.agents import problem_agent
from fbo_flower.simulation.settings import Agents


def agent(context: Context) -> TuningAgent:
    """Return the agent that holds this node's partition of the problem's data."""
    config = AppConfig.read(context.run_config)
    missing = [key for key in ("partition-id", "num-partitions") if key not in context.node_config]
    if missing:
        raise ConfigError(f"node_config: expected {' and '.join(missing)} to choose this node's data")
    num_agents = int(context.node_config["num-partitions"])
    problem, algorithm = config.problem_of(num_agents), config.made()
    models = {"models": str(config.out / "models")} if algorithm.roles and config.out is not None else {}
    return problem_agent(problem, algorithm, config.seed, None, Agents(site_options=models), None, context)


app = agent_app(agent)
