"""The agents' side: `client_app` makes a ClientApp from an objective, `site_app` from a learner.

`add_tuning` adds tuning to an existing ClientApp.
"""

from fbo_flower.clients.agent import TuningAgent
from fbo_flower.clients.app import add_tuning, client_app
from fbo_flower.clients.client_fn_mod import message_api_mod
from fbo_flower.clients.data_file import data_file
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.own_answer import OwnAnswer
from fbo_flower.clients.pruning import Pruning
from fbo_flower.clients.site import Bag, SiteData, SiteObjective
from fbo_flower.clients.site_agent import SiteAgent
from fbo_flower.clients.site_app import site_app

__all__ = [
    "Bag",
    "ObjectiveContext",
    "OwnAnswer",
    "Pruning",
    "SiteAgent",
    "SiteData",
    "SiteObjective",
    "TuningAgent",
    "add_tuning",
    "client_app",
    "data_file",
    "message_api_mod",
    "site_app",
]
