"""What a node reports about its agent when it registers, checked before anything uses it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flwr.app import RecordDict

from fbo_flower import wire
from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.algorithms.registry import CHOOSERS, DISCLOSURES
from fbo_flower.errors import ConfigError, printable
from fbo_flower.space.held import check_names
from fbo_flower.space.space import SearchSpace
from fbo_flower.wire.checks import show

_KNOWN = {
    "agent", "aims", "curves", "digest", "disclose", "disclose_by", "end", "fixed", "flwr", "incarnation",
    "journal", "key", "participation", "private", "python", "role", "schema", "space", "spent", "time",
    "version",
}  # fmt: skip


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


MAX_SKEW = 5.0  # seconds; a larger difference between two clocks is reported
_MAX_NAME = 100  # characters of an agent's id and of the token of its memory
_OPTIONAL: dict[str, tuple[Any, Callable[[Any], bool], str]] = {  # entry -> default, check, expectation
    "incarnation": (
        "",
        lambda text: isinstance(text, str) and len(text) <= _MAX_NAME,
        f"a text of at most {_MAX_NAME} characters",
    ),
    "key": (
        "",
        lambda text: isinstance(text, str) and re.fullmatch("([0-9a-f]{256})?", text) is not None,
        "signed public keys of 128 bytes in hexadecimal digits, as this version of fbo-flower sends them",
    ),
    "aims": (
        NUMBER.to_json(),
        lambda text: isinstance(text, str) and len(text) <= wire.MAX_TEXT,
        f"a text of at most {wire.MAX_TEXT} characters",
    ),
    "participation": (
        1.0,
        lambda share: isinstance(share, float) and 1e-3 <= share <= 1.0,
        "a number from 0.001 to 1",
    ),
    "fixed": (
        [],
        lambda names: isinstance(names, list) and all(isinstance(name, str) for name in names),
        "a list of names of parameters",
    ),
    "private": (
        [],
        lambda names: isinstance(names, list) and all(isinstance(name, str) for name in names),
        "a list of names of outputs",
    ),
}


def read_registration(node: int, content: RecordDict) -> Registration:
    """Return a node's registration; raise ConfigError if a field is missing or malformed."""
    config: Mapping[str, Any] = content.get("config", {})
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
    texts = {key: config.get(key) for key in ("agent", "digest", "space", "role")}
    malformed = [k for k, text in texts.items() if not isinstance(text, str) or len(text) > wire.MAX_TEXT]
    if malformed:
        raise ConfigError(
            f"registration: expected texts of at most {wire.MAX_TEXT} characters for {', '.join(texts)}; "
            f"missing or malformed: {', '.join(malformed)}"
        )
    agent, digest, space_json, role = map(str, texts.values())
    said = {name: config.get(name, default) for name, (default, _, _) in _OPTIONAL.items()}
    for name, (_, is_valid, expected) in _OPTIONAL.items():
        if not is_valid(said[name]):
            raise ConfigError(f"registration: {name}: expected {expected}, got {show(said[name])}")
    if not 0 < len(agent) <= _MAX_NAME or not agent.isprintable():
        raise ConfigError(f"agent: expected 1 to {_MAX_NAME} printable characters, got {agent[:_MAX_NAME]!r}")
    space = _parsed_space(space_json)
    if space.digest != digest:
        raise ConfigError(
            f"digest: expected that of the search space in the same message, {space.digest}, "
            f"got {digest[:64]}"
        )
    said["fixed"] = tuple(said["fixed"])
    check_names(space, said["fixed"])
    aims = Aims.from_json(said["aims"]).keeping(said["private"])
    said |= {"aims": aims.to_json(), "private": aims.private}
    said |= {name: config.get(name) is True for name in ("spent", "curves")}
    chosen = config.get("disclose"), config.get("disclose_by")
    disclosure = f"{chosen[0]}, {chosen[1]}" if chosen[0] in DISCLOSURES and chosen[1] in CHOOSERS else ""
    return Registration(
        node, agent, digest, space_json, role,
        disclosure=disclosure, wants_end=config.get("end") is True, **said,
    )  # fmt: skip


@lru_cache(maxsize=4)  # most agents have the same space
def _parsed_space(text: str) -> SearchSpace:
    return SearchSpace.from_json(text)


def all_refused(refused: Mapping[int, str]) -> str:
    """Return the text of the error that no node takes part."""
    reasons = Counter(refused.values()).most_common()
    count, others = len(refused), len(reasons) - 1
    who = "the only node refuses" if count == 1 else f"all {count} nodes refuse"
    more = f"; {others} other reasons are in the log" if others else ""
    return f"agents: expected nodes that take part, {who}: {reasons[0][0]}{more}"


def too_few(
    expected: int | None, got: int, connected: int, seconds: float, refused: Mapping[int, str]
) -> str:
    """Return the text of the error that too few agents have registered."""
    text = f"agents: expected {expected or 'at least 1'}, only {got} registered after {seconds:g} s"
    if connected > got + len(refused):
        text += f"; {connected - got - len(refused)} connected nodes did not answer"
    if refused:
        text += f"; {len(refused)} were refused, the first because: {next(iter(refused.values()))}"
    if connected < (expected or 1):
        text += "; start more SuperNodes"
        if expected:
            text += f" or set num-supernodes={expected}"
    return text


def shorten(agents: list[str]) -> str:
    """Return the names of the first agents, for a message."""
    names = ", ".join(agents[:5])
    return f"agent {names}" if len(agents) == 1 else f"agents {names}{', ...' if len(agents) > 5 else ''}"


def spaces_of(groups: Mapping[str, list[str]]) -> str:
    """Return which agents have which search space; `groups` maps a digest to agents, largest group first."""
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return "; ".join(f"{digest[:12]} at {shorten(agents)}" for digest, agents in ordered)


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
