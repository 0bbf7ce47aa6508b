"""The agents' side: `client_app` makes a ClientApp from an objective, `site_app` from a learner.

`add_tuning` adds tuning to an existing ClientApp.
"""

from fbo_flower.clients.agent import TuningAgent
from fbo_flower.clients.app import add_tuning, agent_app, client_app, message_api_mod
from fbo_flower.clients.asking import Asked, Site
from fbo_flower.clients.evaluator import Evaluator, ObjectiveEvaluator, TaskContext
from fbo_flower.clients.memory import agent_state_from_bytes
from fbo_flower.clients.model_site import ModelSite, SiteOptions
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.operator import data_file
from fbo_flower.clients.optimizer import Optimizer
from fbo_flower.clients.own_answer import OwnAnswer
from fbo_flower.clients.pruning import Pruning
from fbo_flower.clients.site import Bag, SiteData, SiteObjective, splits
from fbo_flower.clients.site_agent import SiteAgent, noisy_rate, site_app

__all__ = [
    "Asked",
    "Bag",
    "Evaluator",
    "ModelSite",
    "ObjectiveContext",
    "ObjectiveEvaluator",
    "Optimizer",
    "OwnAnswer",
    "Pruning",
    "Site",
    "SiteAgent",
    "SiteData",
    "SiteObjective",
    "SiteOptions",
    "TaskContext",
    "TuningAgent",
    "add_tuning",
    "agent_app",
    "agent_state_from_bytes",
    "client_app",
    "data_file",
    "message_api_mod",
    "noisy_rate",
    "site_app",
    "splits",
]
