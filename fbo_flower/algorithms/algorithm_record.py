"""`AlgorithmRecord`: everything that the rest of the package needs to know about an algorithm.

Listings, strategies, the privacy page, ledgers, plots and `docs/algorithms.md` derive from it. A record names
its class as text, so reading all records, which a device does for every message, imports no algorithm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from fbo_flower.errors import ConfigError

if TYPE_CHECKING:
    from fbo_flower.algorithms.protocol import Algorithm

NOTHING, POINTS, VALUES, BOTH, ROWS, UNKNOWN = (
    "nothing", "points", "values", "points and values", "rows of data", "unknown",
)  # fmt: skip
# the usual sources of a message, for `Meaning.source`
ALL_OBSERVATIONS, ALL_POINTS, THE_COUNT = "all observations of the agent", "all its points", "the count alone"

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_HOME = re.compile(r"\w+(\.\w+)*:\w+")


@dataclass(frozen=True)
class Meaning:
    """The meaning of one array or number in a report.

    Parameters
    ----------
    text : what it is
    source : what it is computed from
    discloses : what it reveals by design, without any inference: "points", "values", "points and values",
        "rows of data" or "nothing"
    """

    text: str
    source: str
    discloses: str = NOTHING

    def __post_init__(self) -> None:
        known = (NOTHING, POINTS, VALUES, BOTH, ROWS, UNKNOWN)
        if self.discloses not in known:
            raise ConfigError(f"discloses: expected one of {', '.join(known)}, got {self.discloses!r}")


class PlotStyle(NamedTuple):
    """The colour and line style of an algorithm in plots.

    Parameters
    ----------
    color : as matplotlib takes it, "#0072B2"
    line : line style as matplotlib takes it: "-", "--", "-.", ":" or `(0, (on, off, ...))`
    """

    color: str
    line: Any = "-"


@dataclass(frozen=True, kw_only=True)
class AlgorithmRecord:
    """The description of one algorithm for the rest of the package.

    Texts may use Markdown; their links are relative to the root of the repository.

    Parameters
    ----------
    name : what users type, in lower case with hyphens: "dp-fts"
    home : the algorithm's class as "package.module:Class"
    summary : one line for listings
    server_sends, agent_sends : the content of the messages, in words for `docs/algorithms.md`
    meanings : name in a report -> its meaning; lists every name in `messages.report_schema`
    inference : what an honest-but-curious server can infer from all reports of a run
    summed : names whose values a server with secure sums sees only as a sum over agents
    inference_with_sums : what such a server can infer beyond the sums; None: what `inference` says, for all
        names that are not summed
    attack : the attack that measures the inference: "package.module:function" of a function `attack(seed)`,
        or the name of one that `python -m studies attack` of the repository has; None: none has been written
    style : colour and line in plots; None: a style derived from the name
    page : path or address of the page on its paper: equations, choices, errata; "" if there is none
    caution : a warning that `help()` of the strategy and the command line show to users
    kind : the class, if it is not registered by a package, such as one in a notebook; None: `home` names it
    """

    name: str
    home: str
    summary: str
    server_sends: str
    agent_sends: str
    inference: str
    meanings: Mapping[str, Meaning] = field(default_factory=dict)
    summed: frozenset[str] = frozenset()
    inference_with_sums: str | None = None
    attack: str | None = None
    style: PlotStyle | None = None
    page: str = ""
    caution: str = ""
    kind: type[Algorithm[Any]] | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"name: expected lower case, digits and hyphens, got {self.name!r}")
        if not _HOME.fullmatch(self.home):
            raise ConfigError(f"{self.name}: home: expected 'package.module:Class', got {self.home!r}")
        if not self.summed <= set(self.meanings):
            unknown = ", ".join(sorted(self.summed - set(self.meanings)))
            raise ConfigError(f"{self.name}: summed: expected names that `meanings` explains, got {unknown}")

    @property
    def class_name(self) -> str:
        """Return the name of the algorithm's class, which is also the name of its strategy."""
        return self.home.partition(":")[2]

    @property
    def attack_name(self) -> str | None:
        """Return the name for `python -m studies attack` of the repository; None if there is no attack."""
        return self.name if self.attack is not None and ":" in self.attack else self.attack

    def load(self) -> type[Algorithm[Any]]:
        """Import the algorithm and return its class.

        Raises
        ------
        ConfigError
            If the class cannot be imported, is not an `Algorithm`, or has another `name` than the record.
        """
        if self.kind is not None:
            return self.kind
        from fbo_flower.algorithms.protocol import Algorithm  # built on numpy; a record is plain text

        kind = load_home(self.name, self.home)
        if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
            raise ConfigError(f"{self.name}: expected a subclass of Algorithm at {self.home}, got {kind!r}")
        own = getattr(kind, "name", None)
        if own != self.name:
            raise ConfigError(f"{self.name}: expected {self.home} to have this name, got name = {own!r}")
        return kind


def load_home(name: str, home: str) -> Any:
    """Import and return the attribute that a record names as "package.module:attribute".

    Parameters
    ----------
    name : the algorithm's name, for the error message
    home : "package.module:attribute"

    Raises
    ------
    ConfigError
        If the module cannot be imported or has no such attribute; the cause says why.
    """
    module, _, attribute = home.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # another package's module may raise anything when it is imported
        raise ConfigError(
            f"{name}: {home} cannot be imported: {type(error).__name__}: {error}; "
            "repair or reinstall its package"
        ) from error
