"""The agent's side: `TuningAgent`, and `client_app` to make a whole ClientApp of an objective."""

from fbo_flower.clients.agent import TuningAgent
from fbo_flower.clients.app import client_app
from fbo_flower.clients.objective import ObjectiveContext

__all__ = ["ObjectiveContext", "TuningAgent", "client_app"]
