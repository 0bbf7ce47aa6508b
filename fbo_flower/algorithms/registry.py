"""All algorithms by name: those of this package, and those of other packages that register theirs.

Another package registers an `AlgorithmRecord` by an entry point:

    [project.entry-points."fbo_flower.algorithms"]
    gossip = "own_algorithm.record:RECORD"

`register` makes an algorithm known in one process, without a package; `simulate` and `client_app` call it.

Entry points are read only to find a name that is not built in, and to list all algorithms: reading them takes
about 10 ms, which a device would spend on every message. A plugin that cannot be used does not affect other
algorithms: `find` raises an error with the reason, `records` warns and leaves the plugin out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from fbo_flower.algorithms.aims import Aims
from fbo_flower.algorithms.algorithm_record import (
    ALL_OBSERVATIONS,
    POINTS,
    UNKNOWN,
    VALUES,
    AlgorithmRecord,
    Meaning,
)
from fbo_flower.algorithms.built_in import RECORDS
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.errors import ConfigError, did_you_mean, kind_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# the default wherever nobody names an algorithm, and of `fbo-flower new`: with the same first points it is
# ahead of the best optimiser that an agent could run alone on most problems (`docs/results/fed-ei.md`). It
# discloses: `docs/papers/fed_ei.md`.
RECOMMENDED: Final = "fed-ei"
# for `fts`, whose defaults follow the paper; `docs/papers/fts.md` says what each option changes
FTS_OPTIONS: Final[dict[str, object]] = {
    "advice": "portfolio",
    "initial_design": "advised",
    "lengthscale": "dimension",
    "y_transform": "winsorise",
    "integer_moves": True,
}


GROUP = "fbo_flower.algorithms"  # group of entry points
BUILT_IN: dict[str, AlgorithmRecord] = {record.name: record for record in RECORDS}
_LOCAL: dict[str, AlgorithmRecord] = {}  # of this process


class PluginWarning(UserWarning):
    """An algorithm of another package cannot be used."""


def find(name: str) -> AlgorithmRecord:
    """Return the record of an algorithm.

    Raises
    ------
    ConfigError
        If no package that is installed here has an algorithm of this name, or its record cannot be used.
    """
    if not isinstance(name, str):
        raise ConfigError(f"algorithm: expected a name such as 'fts', got {kind_of(name)}")
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name in _LOCAL:
        return _LOCAL[name]
    if name in _entries():
        return _plugin(name)
    names = [*BUILT_IN, *_LOCAL, *_entries()]
    meant = built_in_class(name)
    raise ConfigError(
        f"algorithm: expected one of {', '.join(names)}, got {name!r}"
        + (
            did_you_mean(name if meant is None else meant.name, names, "algorithm")
            or "; if it is an algorithm of another package, install that package here too: the server and "
            "every agent need it"
        )
    )


def register(algorithm: type[Algorithm[Any]] | AlgorithmRecord) -> None:
    """Make a class or a record known by its name in this process; what a package registers stays as it is.

    A class of the same name that was registered here before is replaced, as when a cell runs again. A process
    that a study starts knows a record too if it imports the module that calls this.

    Raises
    ------
    ConfigError
        If it is no algorithm, or another one of a package has its name.
    """
    if isinstance(algorithm, AlgorithmRecord):
        if algorithm.name in BUILT_IN or algorithm.name in _entries():
            other = find(algorithm.name).home
            raise ConfigError(
                f"algorithm: {algorithm.name!r} is the name of {other}; rename {algorithm.home}"
            )
        _LOCAL[algorithm.name] = algorithm
        return
    kind: Any = algorithm
    named = isinstance(kind, type) and isinstance(getattr(kind, "name", None), str)
    if not named or not issubclass(kind, Algorithm):
        raise ConfigError(f"algorithms: expected a subclass of Algorithm with a name, got {kind!r}")
    packaged = BUILT_IN.get(kind.name) or (_plugin(kind.name) if kind.name in _entries() else None)
    if packaged is None:
        if kind.name not in _LOCAL or _LOCAL[kind.name].load() is not kind:
            text = " ".join((kind.__doc__ or "").split()) or "an algorithm of your own"
            _LOCAL[kind.name] = AlgorithmRecord(
                name=kind.name, home=f"{kind.__module__}:{kind.__name__}", kind=kind,
                summary=text.partition(". ")[0].rstrip("."), server_sends="not described",
                agent_sends="not described", inference="Not known: nobody has described it.",
            )  # fmt: skip
    elif packaged.load() is not kind and kind.__module__.partition(".")[0] != packaged.home.partition(".")[0]:
        # a class of the same package may be a form of the recorded one, as `pf-pne` has several
        raise ConfigError(
            f"algorithms: {kind.name!r} is the name of {packaged.home}; give {kind.__name__} another name"
        )


def lookup(name: str) -> AlgorithmRecord | None:
    """Return the record of an algorithm, None if it is not installed here or cannot be used."""
    try:
        return find(name)
    except ConfigError:
        return None


def option_owners(*names: str) -> dict[str, AlgorithmRecord]:
    """Return option -> the first of these algorithms, or of all built-in ones, that has it."""
    found: dict[str, AlgorithmRecord] = {}
    for record in filter(None, map(lookup, names or BUILT_IN)):
        found |= dict.fromkeys(record.load().option_defaults().keys() - found.keys(), record)
    return found


def records() -> dict[str, AlgorithmRecord]:
    """Return all records by name, those of this package first; warn about plugins that cannot be used."""
    found = BUILT_IN | _LOCAL
    for name in _entries():
        try:
            found[name] = _plugin(name)
        except ConfigError as error:
            warnings.warn(str(error), PluginWarning, stacklevel=2)
    return found


class Algorithms(Mapping[str, type[Algorithm[Any]]]):
    """Name -> class of every algorithm; a class is imported when it is looked up."""

    def __getitem__(self, name: str) -> type[Algorithm[Any]]:
        if name not in self:
            raise KeyError(name)
        return find(name).load()

    def __iter__(self) -> Iterator[str]:
        return iter(records())

    def __len__(self) -> int:
        return len(records())

    def __contains__(self, name: object) -> bool:
        return name in BUILT_IN or name in _LOCAL or name in _entries()


def check_aims(algorithm: Algorithm[Any], aims: Aims) -> None:
    """Raise ConfigError if a trial has several outputs and the algorithm models one number."""
    if aims.has_outputs and not algorithm.takes_outputs:
        able = ", ".join(sorted(name for name, kind in Algorithms().items() if kind.takes_outputs))
        raise ConfigError(
            f"objectives: expected one number, because {algorithm.name} models one, got "
            f"{', '.join(aims.names)}; algorithms for several outputs: {able}"
        )


def built_in_class(class_name: str) -> AlgorithmRecord | None:
    """Return the record of this package whose class has this name."""
    return next((record for record in BUILT_IN.values() if record.class_name == class_name), None)


@cache
def _entries() -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points by name; a name that two packages register has two."""
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=GROUP):
        # `sys.path` may list a package twice; its entry points then appear twice but are equal
        found[entry.name] = tuple(dict.fromkeys((*found.get(entry.name, ()), entry)))
    return found


@cache
def _plugin(name: str) -> AlgorithmRecord:
    entries = _entries()[name]
    if name in BUILT_IN:
        raise ConfigError(
            f"algorithm: {name!r} is built in ({BUILT_IN[name].home}), and {_package(entries[0])} registers "
            f"{entries[0].value} under the same name; the built-in algorithm is used, rename the other one"
        )
    if len(entries) > 1:
        both = " and ".join(f"{_package(entry)} ({entry.value})" for entry in entries)
        raise ConfigError(f"algorithm: {name!r} is registered by {both}; uninstall all but one")
    (entry,) = entries
    try:
        record = entry.load()
    except Exception as error:  # another package's module may raise anything when it is imported
        raise ConfigError(
            f"algorithm: {name!r} of {_package(entry)} cannot be used: {entry.value} raised "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(record, AlgorithmRecord) or record.name != name:
        got = f"a record named {record.name!r}" if isinstance(record, AlgorithmRecord) else repr(record)
        raise ConfigError(
            f"algorithm: {name!r} of {_package(entry)} cannot be used: expected an AlgorithmRecord of this "
            f"name at {entry.value}, got {got}"
        )
    return record


def _package(entry: EntryPoint) -> str:
    return "an unnamed package" if entry.dist is None else f"the package {entry.dist.name}"


# -- what leaves an agent: the names that all algorithms share; see `docs/privacy.md` ----------------

DISCLOSURES = ("none", "incumbent", "trials")  # what an operator allows an agent to send
DEFAULT, APP, OPERATOR, SIMULATION = "default", "app author", "operator", "simulation"
CHOOSERS = (DEFAULT, APP, OPERATOR, SIMULATION)  # who set `disclose`; the default is "none"
ENVELOPE = "header"  # name under which ledgers list the header of a message

COMMON: dict[str, Meaning] = {
    ENVELOPE: Meaning("who answers which task: names, round, number of trials", "the task"),
    "num-failed": Meaning("how many evaluations of the task failed", "the evaluations of this task"),
    "secure.words": Meaning(
        "its numbers under masks, which cancel in the sum over agents and nowhere else", ALL_OBSERVATIONS
    ),
    "secure.signature": Meaning("that it was told which agents have sent numbers", "the task"),
    "secure.boxes": Meaning("shares of its mask, sealed for other agents", "the mask"),
    "secure.commitment": Meaning("what binds it to its mask", "the mask"),
    "secure.revealed": Meaning(
        "shares of others' masks; of an agent that left, the mask they have in common", "the masks"
    ),
    "disclosed.points": Meaning("the points of this task", "this task", POINTS),
    "disclosed.values": Meaning("the values of this task", "this task", VALUES),
    "disclosed.outputs": Meaning("the other numbers that the objective returned", "this task", VALUES),
    "disclosed.feasible": Meaning(
        "which of them hold the agent's limits, so that many of them bracket its bounds", "this task", VALUES
    ),
    "disclosed.pulls": Meaning("how often each of them was evaluated", "this task"),
    "disclosed.times": Meaning("when each of them was evaluated", "this task"),
    "disclosed.stopped": Meaning("the last step of trials that were stopped early", "this task"),
    "disclosed.curves": Meaning(
        "per step of its learning curves their number and their median, from 3 curves on",
        "the completed trials of the agent", VALUES,
    ),
    "disclosed.failures": Meaning("why evaluations failed, in words", "this task"),
    "disclosed.incumbent": Meaning(
        "the value at its best configuration", ALL_OBSERVATIONS, VALUES
    ),
    "disclosed.expected": Meaning(
        "the mean that its model expects at its best configuration, where values are noisy",
        ALL_OBSERVATIONS, VALUES,
    ),
    "disclosed.recommendation": Meaning(
        "its best configuration", ALL_OBSERVATIONS, POINTS
    ),
}  # fmt: skip


def meaning(algorithm: str, name: str) -> Meaning:
    """Return the meaning of a name in an algorithm's report, or a meaning that says it is not described."""
    record = lookup(algorithm)
    own = {} if record is None else record.meanings
    known = own.get(name) or COMMON.get(name)
    return known or Meaning("not described by what is installed here", "unknown", UNKNOWN)


def meanings(algorithm: str, least: int = 0) -> dict[str, Meaning] | None:
    """Return the meaning of everything that may leave an agent; None if the algorithm is not installed here.

    Parameters
    ----------
    least : smallest number of agents in a secure sum; 0: no secure sums
    """
    record = lookup(algorithm)
    if record is None:
        return None
    if not least:
        return dict(record.meanings)
    masked = {name: said for name, said in COMMON.items() if name.startswith("secure.")}
    return {n: said for n, said in record.meanings.items() if n not in record.summed} | masked


def inference(algorithm: str, least: int = 0) -> str:
    """Return what an honest-but-curious server can infer from all reports of a run.

    Parameters
    ----------
    least : smallest number of agents in a secure sum; 0: no secure sums
    """
    record = lookup(algorithm)
    if record is None:
        return "Not examined."
    if not least or not record.summed:
        return record.inference
    *others, last = sorted(record.summed)
    names = f"{', '.join(others)} and {last}" if others else last
    sums = f"It sees {names} only as sums over at least {least} agents. One such sum tells nothing else."
    beyond = record.inference_with_sums
    return f"{sums} {f'Of all else: {record.inference}' if beyond is None else beyond}".rstrip()
