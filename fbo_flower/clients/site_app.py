"""`site_app`: make a Flower ClientApp for a site from a learner, its search space and the site's rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Context
from flwr.clientapp import ClientApp

from fbo_flower.algorithms.registry import APP
from fbo_flower.clients.app import agent_app
from fbo_flower.clients.model_site import ModelSite
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.own_answer import OnFinish
from fbo_flower.clients.site import Export, Scorer, SiteData, SiteObjective
from fbo_flower.clients.site_agent import SiteAgent
from fbo_flower.clients.site_options import SiteOptions
from fbo_flower.space.space import SearchSpace


def site_app(
    make_model: Callable[[Mapping[str, Any]], Any],
    space: SearchSpace,
    load_data: Callable[[ObjectiveContext], SiteData],
    *,
    scorer: str | Scorer = "misclassification",
    folds: int = 10,
    format: str = "skops",
    export: Export | None = None,
    seed: int | None = None,
    disclose: str | None = None,
    on_finish: OnFinish | None = None,
) -> ClientApp:
    """Return a ClientApp for an openbox, a curator or a lockbox.

    All sites run the same app. `node_config` holds the site's `role` and the operator's options, see
    `SiteOptions`. It is also the place for the path of the rows, which `load_data` gets in its context.

    Parameters
    ----------
    make_model, load_data, scorer, folds, format, export : see `SiteObjective`
    space : search space of `make_model`'s configurations; the server compares its digest with the other
        sites' at registration
    seed, disclose : see `TuningAgent`
    on_finish : called once at every site when the study has ended, see `SiteAgent`
    """
    objective = SiteObjective(make_model, load_data, scorer, folds, format=format, export=export)

    def agent(context: Context) -> SiteAgent:
        return site_agent(objective, space, context, seed=seed, disclose=disclose, on_finish=on_finish)

    return agent_app(agent)


def site_agent(
    objective: SiteObjective,
    space: SearchSpace,
    context: Context,
    *,
    role: str = "",
    seed: int | None = None,
    disclose: str | None = None,
    defaults: Mapping[str, Any] | None = None,
    journals: str | os.PathLike[str] | None = None,
    on_finish: OnFinish | None = None,
    chosen_by: str = APP,
) -> SiteAgent:
    """Return the agent of a site.

    Parameters
    ----------
    role, defaults : role and values of `SiteOptions` that `node_config` does not set
    """
    options = SiteOptions.read(context.node_config, defaults or {})
    site = ModelSite(objective, options)
    return SiteAgent(
        site, options, space, context,
        role=role, seed=seed, disclose=disclose, journals=journals, on_finish=on_finish, chosen_by=chosen_by,
    )  # fmt: skip
