"""What a node reports of its agent, and the checks of it before anything uses it.

A node answers a QUERY message with its agent's id, its wire schema version and its search space, and with
what its operator decided: the share of the rounds in which the agent wants tasks, the parameters that it does
not tune, the outputs that stay there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flwr.app import RecordDict

from fbo_flower import wire
from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.registry import CHOOSERS, DISCLOSURES
from fbo_flower.errors import ConfigError, WireError, printable
from fbo_flower.space.held import check_names
from fbo_flower.space.space import SearchSpace
from fbo_flower.wire.checks import check_names as check_entries
from fbo_flower.wire.checks import show


@dataclass(frozen=True)
class Registration:
    """What one node reports about its agent.

    Parameters
    ----------
    agent : the id that it reports
    incarnation : token of its memory; "" for an agent that sent none
    key : its signed public keys in hexadecimal digits; "" for an agent that sent none
    disclosure : what the agent discloses and who chose it, such as "none, default"; "" if it did not say
    wants_end : whether it asks for a message when the study has ended
    aims : its objectives and limits as JSON, without bounds
    spent : whether it has used up its budget of evaluations
    participation : share of the rounds in which it wants tasks
    fixed : parameters that it does not tune
    private : outputs that its operator keeps there
    curves : whether it understands tasks with pooled curves
    """

    node: int = 0
    agent: str = ""
    digest: str = ""
    space: str = ""
    role: str = ""
    incarnation: str = ""
    key: str = ""
    disclosure: str = ""
    wants_end: bool = False
    aims: str = NUMBER.to_json()
    spent: bool = False
    participation: float = 1.0
    fixed: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    curves: bool = False


_parsed_space = lru_cache(maxsize=4)(SearchSpace.from_json)  # most agents have the same space


MAX_SKEW = 5.0  # seconds; a larger difference between two clocks is reported
MAX_NAMES = 10_000  # parameters or outputs in a list
_MAX_NAME = 100  # characters of an agent's id and of the token of its memory
_Entry = tuple[Any, Callable[[Any], bool], str]  # default, check, expectation


def _text(default: str | None = None, most: int = wire.MAX_TEXT) -> _Entry:
    expected = f"a text of at most {most} characters"
    return default, lambda value: isinstance(value, str) and len(value) <= most, expected


def _names(what: str) -> _Entry:
    def is_valid(value: Any) -> bool:
        return isinstance(value, list) and len(value) <= MAX_NAMES and all(isinstance(n, str) for n in value)

    return [], is_valid, f"a list of names of {what}"


_ENTRIES: dict[str, _Entry] = {
    "agent": (
        None,
        lambda name: isinstance(name, str) and 0 < len(name) <= _MAX_NAME and name.isprintable(),
        f"1 to {_MAX_NAME} printable characters",
    ),
    "digest": _text(),
    "space": _text(),
    "role": _text(""),
    "incarnation": _text("", _MAX_NAME),
    "key": (
        "",
        lambda text: isinstance(text, str) and re.fullmatch("([0-9a-f]{256})?", text) is not None,
        "signed public keys of 128 bytes in hexadecimal digits, as this version of fbo-flower sends them",
    ),
    "aims": _text(NUMBER.to_json()),
    "participation": (
        1.0,
        lambda share: isinstance(share, float) and 1e-3 <= share <= 1.0,
        "a number from 0.001 to 1",
    ),
    "fixed": _names("parameters"),
    "private": _names("outputs"),
}
_OTHERS = "curves disclose disclose_by end flwr journal python schema spent time version"


def read_registration(node: int, content: RecordDict) -> Registration:
    """Return a node's registration; raise ConfigError if a field is missing or malformed."""
    config: Mapping[str, Any] = content.get("config", {})
    if config.get("schema") != wire.SCHEMA_VERSION:
        raise ConfigError(
            f"schema: expected version {wire.SCHEMA_VERSION}, got {config.get('schema')!r}; install the same "
            "version of fbo-flower on server and agents"
        )
    try:
        check_entries(content, {"config"}, "registration")
        check_entries(config, {*_ENTRIES, *_OTHERS.split()}, "registration")
    except WireError as error:
        raise ConfigError(f"{error}; install the same version of fbo-flower on server and agents") from error
    fields = {name: config.get(name, default) for name, (default, _, _) in _ENTRIES.items()}
    for name, (_, is_valid, expected) in _ENTRIES.items():
        if not is_valid(fields[name]):
            raise ConfigError(f"registration: {name}: expected {expected}, got {show(fields[name])}")
    space = _parsed_space(fields["space"])
    if space.digest != fields["digest"]:
        raise ConfigError(
            f"digest: expected that of the search space in the same message, {space.digest}, "
            f"got {fields['digest'][:64]}"
        )
    fields["fixed"] = tuple(fields["fixed"])
    check_names(space, fields["fixed"])
    aims = Aims.from_json(fields["aims"]).keeping(fields["private"])
    fields |= {"aims": aims.to_json(), "private": aims.private, "wants_end": config.get("end") is True}
    fields |= {name: config.get(name) is True for name in ("spent", "curves")}
    chosen = config.get("disclose"), config.get("disclose_by")
    disclosure = f"{chosen[0]}, {chosen[1]}" if chosen[0] in DISCLOSURES and chosen[1] in CHOOSERS else ""
    return Registration(node, disclosure=disclosure, **fields)


def shorten(agents: list[str]) -> str:
    """Return the names of the first agents, for a message."""
    names = ", ".join(agents[:5])
    return f"agent {names}" if len(agents) == 1 else f"agents {names}{', ...' if len(agents) > 5 else ''}"


def differing_parameters(spaces: Sequence[SearchSpace]) -> str:
    """Return the names of the parameters in which search spaces differ, or that only their order does."""
    names = dict.fromkeys(name for space in spaces for name in space.parameters)
    first = spaces[0].parameters
    differ = [name for name in names if any(s.parameters.get(name) != first.get(name) for s in spaces)]
    if not differ:
        return "the order of the parameters"
    return ", ".join(name[:40] for name in differ[:5]) + ", ..." * (len(differ) > 5)


def skew(node: Mapping[str, Any]) -> float:
    """Return by how many seconds, at least, a node's clock is ahead of the server's; negative: behind.

    The node read its clock after the server had sent the question and before the server got the answer. A
    time between those two counts as right, 0. What is no time counts as right too: other checks refuse it.
    """
    time = node.get("time")
    if isinstance(time, bool) or not isinstance(time, int | float) or not math.isfinite(time):
        return 0.0
    return max(0.0, time - float(node["heard"])) - max(0.0, float(node["sent"]) - time)


def node_differences(node: Mapping[str, Any], server: Mapping[str, Any]) -> list[str]:
    """Return in which versions a node differs from the server, and by how much its clock is off.

    Parameters
    ----------
    node : the properties that the node reports, and `sent` and `heard`, see `skew`
    server : `version` and `flwr` of the server
    """
    found = [
        f"{title} {printable(str(node[name]))[:40]}, the server has {server[name]}"
        for name, title in (("version", "fbo-flower"), ("flwr", "flwr"))
        if name in node and node[name] != server[name]
    ]
    if abs(seconds := skew(node)) > MAX_SKEW:
        found.append(f"its clock is {seconds:+.0f} s off the server's")
    return found
