"""The journal's first event: the search space and the agents that registered at the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fbo_flower.algorithms.records import Federation
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage import Event


def federation_to_event(study: str, federation: Federation) -> Event:
    """Return the journal's first event: the search space and the agents that registered at the start."""
    values = {
        "study": study,
        "space": federation.space.to_json(),
        "agents": list(federation.agents),
        "roles": dict(federation.roles),
    }
    return Event("roll", values=values)


def federation_from_event(event: Event) -> tuple[str, Federation]:
    """Undo `federation_to_event`: return the study's id and its federation."""
    values = event.values
    space = SearchSpace.from_json(str(values["space"]))
    agents = tuple(cast(list[str], values["agents"]))
    return str(values["study"]), Federation(space, agents, texts(values["roles"]))


def texts(value: object) -> dict[str, str]:
    """Return a mapping of a journal's event as one of texts."""
    return {str(k): str(v) for k, v in cast(Mapping[str, object], value).items()}
