"""What a node reports about its agent when it registers, checked before anything uses it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flwr.app import RecordDict

from fbo_flower import wire
from fbo_flower.algorithms.disclosure import CHOOSERS, DISCLOSURES
from fbo_flower.errors import ConfigError
from fbo_flower.space.held import check_names
from fbo_flower.space.space import SearchSpace
from fbo_flower.wire.checks import show

_KNOWN = {
    "agent", "curves", "digest", "disclose", "disclose_by", "end", "fixed", "flwr", "incarnation",
    "journal", "key", "minimize", "participation", "python", "role", "schema", "space", "spent", "time",
    "version",
}  # fmt: skip


@dataclass(frozen=True)
class Registration:
    """What one node reports about its agent.

    Parameters
    ----------
    disclosure : what the agent discloses and who chose it, such as "none, default"; "" if it did not say
    wants_end : whether it asks for a message when the study has ended
    minimize : whether its objective is a loss, with its sign changed
    spent : whether it has used up its budget of evaluations
    participation : share of the rounds in which it wants tasks
    fixed : parameters that it does not tune
    curves : whether it understands tasks with pooled curves
    """

    node: int
    agent: str
    digest: str
    space: str
    role: str
    incarnation: str
    key: str
    disclosure: str = ""
    wants_end: bool = False
    minimize: bool = False
    spent: bool = False
    participation: float = 1.0
    fixed: tuple[str, ...] = ()
    curves: bool = False


def read_registration(node: int, content: RecordDict) -> Registration:
    """Return a node's registration; raise ConfigError if a field is missing or malformed."""
    config: Mapping[str, Any] = content.get("config", {})
    texts = {key: config.get(key) for key in ("agent", "digest", "space", "role")}
    if config.get("schema") != wire.SCHEMA_VERSION:
        raise ConfigError(
            f"schema: expected version {wire.SCHEMA_VERSION}, got {config.get('schema')!r}; install the same "
            "version of fbo-flower on server and agents"
        )
    unknown = sorted(set(config) - _KNOWN)
    if unknown or set(content) != {"config"}:
        got = show(unknown or sorted(content))
        raise ConfigError(
            f"registration: expected only the entries that this version knows, got {got}; install "
            "the same version of fbo-flower on server and agents"
        )
    malformed = [k for k, text in texts.items() if not isinstance(text, str) or len(text) > wire.MAX_TEXT]
    if malformed:
        raise ConfigError(
            f"registration: expected texts of at most {wire.MAX_TEXT} characters for {', '.join(texts)}; "
            f"missing or malformed: {', '.join(malformed)}"
        )
    texts["incarnation"] = config.get("incarnation", "")
    if not isinstance(texts["incarnation"], str) or len(texts["incarnation"]) > 100:
        raise ConfigError("registration: incarnation: expected a text of at most 100 characters")
    texts["key"] = config.get("key", "")
    if not isinstance(texts["key"], str) or not re.fullmatch("([0-9a-f]{290})?", texts["key"]):
        raise ConfigError(
            "registration: key: expected signed public keys of 145 bytes in hexadecimal digits; install the "
            "same version of fbo-flower on server and agents"
        )
    named = {name: str(text) for name, text in texts.items()}
    registration = Registration(
        node, **named, disclosure=_disclosure(config),
        wants_end=config.get("end") is True, minimize=config.get("minimize") is True,
        spent=config.get("spent") is True, participation=_participation(config),
        fixed=_fixed(config), curves=config.get("curves") is True,
    )  # fmt: skip
    if not 0 < len(registration.agent) <= 100 or not registration.agent.isprintable():
        shown = registration.agent[:100]
        raise ConfigError(f"agent: expected 1 to 100 printable characters, got {shown!r}")
    space = _space(registration.space)
    digest = space.digest
    if digest != registration.digest:
        raise ConfigError(
            f"digest: expected that of the search space in the same message, {digest}, "
            f"got {registration.digest[:64]}"
        )
    check_names(space, registration.fixed)
    return registration


def _fixed(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the parameters that the agent does not tune."""
    names = config.get("fixed", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError("registration: fixed: expected a list of names of parameters")
    return tuple(names)


def _participation(config: Mapping[str, Any]) -> float:
    """Return the share of the rounds in which the agent wants tasks; ConfigError if it is none."""
    share = config.get("participation", 1.0)
    if not isinstance(share, float) or not 1e-3 <= share <= 1.0:
        raise ConfigError(
            f"registration: participation: expected a number from 0.001 to 1, got {str(share)[:100]}"
        )
    return share


@lru_cache(maxsize=4)  # most agents have the same space
def _space(text: str) -> SearchSpace:
    return SearchSpace.from_json(text)


def _disclosure(config: Mapping[str, Any]) -> str:
    """Return what the agent discloses and who chose it; "" if it says nonsense."""
    said = config.get("disclose"), config.get("disclose_by")
    return f"{said[0]}, {said[1]}" if said[0] in DISCLOSURES and said[1] in CHOOSERS else ""
