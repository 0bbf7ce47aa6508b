"""Every error that this package raises on purpose.

::

    FBOError
    ├── ConfigError      a setting, an option or a search space is wrong; nothing was started
    │   └── HookError    a method of an algorithm returned what cannot be used
    ├── WireError        a message is malformed, of another version or not for this study
    │   └── ModelError   a received model was refused, or failed in its sandbox
    ├── NumericalError   a matrix or an iteration failed beyond repair
    ├── ObjectiveError   an evaluation of the user's objective failed, or a study ended without any value
    ├── NotInTimeError   a site or its agent did not answer the other in time; it is asked again
    └── JournalError     a journal is in use, damaged, of another version or of another study

Each message names the object, what was expected and what came, in one line. Messages may quote texts that
came over the wire, so control characters in them are written as escapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

_T = TypeVar("_T", bound=Callable[..., Any])


def number_text(value: float) -> str:
    """Return a value with four decimals, or with six digits if it is very large or small.

    Examples
    --------
    >>> number_text(0.8125), number_text(-1e308), number_text(2e-7), number_text(0.0)
    ('0.8125', '-1e+308', '2e-07', '0.0000')
    """
    return f"{value:.4f}" if value == 0.0 or 1e-3 <= abs(value) < 1e9 else f"{value:.6g}"


def printable(text: str) -> str:
    r"""Return a text in which control characters are escapes, so that it cannot control a terminal.

    Line breaks, ANSI sequences, marks that change the direction of writing and other invisible characters
    become Python escapes. Use it for every text from elsewhere that goes to a terminal or a log.

    >>> print(printable("a\x1b[31mb\nc\u202ed é"))
    a\x1b[31mb\nc\u202ed é
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def brief(text: str) -> str:
    """Return a text of at most 4000 characters: of a longer one, its beginning and its end."""
    return text if len(text) <= 4000 else f"{text[:3000]} ... {text[-900:]}"


class FBOError(Exception):
    """Base class: catch this to catch everything this package raises on purpose."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(brief(printable(a)) if isinstance(a, str) else a for a in arguments))


class ConfigError(FBOError, ValueError):
    """A setting, an option or a search space is invalid."""


class HookError(ConfigError):
    """A method of an algorithm returned what cannot be used, as it would again.

    A strategy ends the study with it if all agents that were asked answer with it.
    """

    @classmethod
    def text_in(cls, reason: str) -> str:
        """Return the text of this error in the reason of a failed reply, "" if it is another one."""
        return reason.partition(f"{cls.__name__}: ")[2]


class WireError(FBOError, ValueError):
    """A received message is malformed, inconsistent or not for this study.

    Parameters
    ----------
    message : names the object, what was expected and what came
    reason : one word by which a study counts refused messages: "schema", "study", "agent", "space", "phase",
        "round", "trial", "num-trials" and "num-failed" for that entry of a message; "content", "size",
        "encoding", "names", "dtype", "shape", "not-finite", "bounds", "values" and "disclosed" if the form of
        an entry is wrong, "covariance" and "report" if its content is inconsistent
    """

    def __init__(self, message: str, reason: str = "report") -> None:
        super().__init__(message)
        self.reason = reason


class ModelError(WireError):
    """A received model was refused, or did not predict within its limits."""


class NumericalError(FBOError, ArithmeticError):
    """A computation failed although its input was well-formed."""


class ObjectiveError(FBOError, RuntimeError):
    """The user's objective raised an exception or returned something other than a finite number.

    A strategy raises it at the end of a study if every evaluation failed, or if not one valid reply came.
    """


class WrongTypeError(ObjectiveError):
    """An objective returned something that is no number, which it would do again; nothing else is evaluated.

    Servers know it by the beginning of its text, which is all that arrives of an agent's exception. The text
    that leaves an agent names the type only, unless its operator discloses trials.

    Parameters
    ----------
    kind : what came back, such as "a dict"
    shown : the beginning of what came back
    wanted : what was expected: `NUMBER`, or "a dict of NAMES"
    """

    NUMBER = "one finite number"

    def __init__(self, kind: str, shown: str = "", wanted: str = NUMBER) -> None:
        what = "a float" if wanted == self.NUMBER else "these numbers by name"
        shown = "" if shown == kind else shown
        super().__init__(
            f"objective: expected {wanted}, got {kind}{f', {shown}' if shown else ''}; return {what}"
        )
        self.kind, self.shown, self.wanted = kind, shown, wanted

    def __reduce__(self) -> tuple[type[WrongTypeError], tuple[str, str, str]]:
        return type(self), (self.kind, self.shown, self.wanted)

    @classmethod
    def text_in(cls, reason: str) -> str:
        """Return the text of this error in the reason of a failed reply, "" if it is another one."""
        wanted, ends = f"({cls.NUMBER}|a dict of .*)", "(a float|these numbers by name)"
        found = re.search(f"objective: expected {wanted}, got .*?; return {ends}", reason, re.DOTALL)
        return found.group() if found else ""


class NotInTimeError(FBOError, TimeoutError):
    """A site's process was asked nothing in time, or it told its agent nothing; no trial is lost."""


class JournalError(FBOError, OSError):
    """A journal file is in use by another process, damaged, or belongs to something else."""


_GOAL = {
    "direction": "minimize=True for a loss",
    **dict.fromkeys(("maximize", "maximise"), "minimize=False, the default"),
    "directions": 'objectives={"accuracy": "max", "seconds": "min"}',
    "constraints_func": 'limits={"latency_ms": 20.0}',
}
_SERVER = "a setting of the server, such as num-rounds and algorithm of its run config"
_RANGE = {"log_scale": "log", "min": "low", "lower": "low", "max": "high", "upper": "high", "q": "step"}
_CHOICES = dict.fromkeys(("options", "values", "items"), "choices")
# place -> what people type there who know other libraries, or another place -> what is meant
MEANT: dict[str, dict[str, str]] = {
    "simulate": {
        **_GOAL,
        "n_rounds": "num_rounds",
        "budget": "num_trials, evaluations of each agent",
        "n_trials": "num_trials, evaluations of each agent",
        "timeout": "trial_timeout of agents=Agents(...), or Ctrl-C",
        "n_jobs": 'engine="ray", which uses all cores, or num_parallel of agents=Agents(...)',
        "sampler": "algorithm",
        "options": 'an object, as in algorithm=algorithms.FTS(advice="portfolio")',
        "pruner": "pruning of agents=Agents(...)",
        "storage": "keep=Keep(journals=DIRECTORY), or callbacks=[OptunaTracker(STORAGE)]",
        "journal": "keep=Keep(journals=DIRECTORY)",
        "study_name": "keep=Keep(label=...)",
        "random_state": "seed",
        "search_space": "space",
        "mode": "rounds=Async()",
        "disclose": "nothing: the study of a simulation has every trial",
        **dict.fromkeys(("num_agents", "num_clients", "n_clients", "clients", "sites"), "agents"),
    },
    "client_app": {
        **_GOAL,
        **dict.fromkeys(("num_rounds", "n_trials", "algorithm", "sampler"), _SERVER),
        **dict.fromkeys(("budget", "num_trials"), "max_trials"),
        **dict.fromkeys(("n_jobs", "num_workers"), "num_parallel"),
        "timeout": "trial_timeout",
        "pruner": "pruning",
    },
    "Optimizer": {**_GOAL, "sampler": "algorithm", "search_space": "space"},
    "tune_federation": {
        **dict.fromkeys(("n_trials", "num_trials", "sampler"), "search=Search(...)"),
        "num_rounds": "rounds",
        "search_space": "space",
        **dict.fromkeys(("minimize", "maximize", "direction"), "judge=Judge(...)"),
        "pruner": "search=Search(...)",
        **dict.fromkeys(("journals", "out", "resume"), "keep=Keep(...)"),
    },
    "Float": _RANGE,
    "Int": _RANGE,
    "Categorical": _CHOICES,
    "Ordinal": _CHOICES,
    "options": {
        **dict.fromkeys(("epsilon", "noise_multiplier"), "an option of dp-fts, max_epsilon"),
        **{name: f"an option of dp-fts, {name}" for name in ("delta", "clip")},
        "advice": "an option of fts and dp-fts",
    },
    "algorithm": {
        **dict.fromkeys(("tpe", "bo", "gp", "bayesian", "bayes"), "fed-ei, or ei if each agent tunes alone"),
        "grid": "random",
    },
    "objectives": {
        **dict.fromkeys(("maximize", "maximise", "maximum", "higher", "larger"), "max"),
        **dict.fromkeys(("minimize", "minimise", "minimum", "lower", "smaller"), "min"),
    },
    "Study": {
        "best_params": "best_config, or best[AGENT]['config']",
        "best_trial": "best[AGENT]",
        "best_trials": "best, or front(AGENT) of several objectives",
        "trials_dataframe": "to_dataframe()",
        "get_trials": "trials",
        "history": "trials",
        "optimize": "fbo_flower.simulate(objective, space, agents)",
    },
}


def did_you_mean(name: object, known: Iterable[str], place: str = "") -> str:
    """Return "; did you mean X" for the known name that is most like `name`; "" if none is like it.

    At a place in `MEANT`, what other libraries call `name` comes before names that look like it.

    >>> did_you_mean("advise", ["advice", "schedule"]), did_you_mean("FedEI", ["ei", "fed-ei"])
    ('; did you mean advice?', '; did you mean fed-ei?')
    >>> did_you_mean("get_trials", [], "Study")
    '; here that is trials'
    """
    if meant := MEANT.get(place, {}).get(str(name)[:100].lower()):
        return f"; here that is {meant}"
    close = closest(name, known)
    return "" if close is None else f"; did you mean {close}?"


def closest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name most like `name`, whatever its case and dashes; None if none is like it."""
    from difflib import get_close_matches  # seldom needed

    names = {_letters(one): one for one in known}
    close = get_close_matches(_letters(str(name)[:100]), names, n=1, cutoff=0.6)
    return names[close[0]] if close else None


def check_names(
    given: Iterable[str], known: Iterable[str], place: str, elsewhere: Mapping[str, str] | None = None
) -> None:
    """Raise ConfigError, with what is meant, if a function is called with an argument that it does not have.

    Parameters
    ----------
    place : the name of the function
    elsewhere : settings of other objects -> how each is written, such as "keep=Keep(resume=...)"
    """
    own, elsewhere = list(known), elsewhere or {}
    for name in (one for one in given if one not in own):
        hint = did_you_mean(name, (), place)
        if not hint and name in elsewhere:
            hint = f"; here that is {elsewhere[name]}"
        if not hint and (close := closest(name, [*elsewhere, *own])) is not None:
            hint = f"; did you mean {close if close in own else elsewhere[close]}?"
        hint = hint or f"; it has {', '.join(one for one in own if one != 'self')}"
        raise ConfigError(f"{name}: expected an argument of {place}, got an unknown one{hint}")


def explains_names(callee: _T) -> _T:
    """Let a function or a class say what is meant if it is called with an argument that it does not have.

    >>> @explains_names
    ... def tuned(*, rate=0.1):
    ...     return rate
    >>> tuned(rat=1)
    Traceback (most recent call last):
        ...
    fbo_flower.errors.ConfigError: rat: expected an argument of tuned, got an unknown one; did you mean rate?
    """
    function: Callable[..., Any] = callee.__init__ if isinstance(callee, type) else callee  # type: ignore[misc]

    @wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        try:
            return function(*args, **given)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is None:  # of the call itself
                code = function.__code__
                known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
                check_names(given, known, callee.__name__)
            raise

    if not isinstance(callee, type):
        return cast(_T, checked)
    callee.__init__ = checked  # type: ignore[misc]
    return callee


def _letters(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()


def kind_of(value: object) -> str:
    """Return what a value is, for a message that says what was got instead of something else.

    >>> kind_of({"x": 1}), kind_of(None), kind_of(3), kind_of([])
    ('a dict', 'None', '3', 'a list')
    """
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 10**40):
        return repr(value)  # of a huge int, Python refuses it
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return with_article(type(value).__name__)


def with_article(name: str) -> str:
    """Return a name behind its article.

    >>> with_article("ndarray"), with_article("OrderedDict"), with_article("tuple")
    ('an ndarray', 'an OrderedDict', 'a tuple')
    """
    return f"{'an' if name.lower().startswith(('a', 'e', 'i', 'o', 'u', 'nd')) else 'a'} {name}"
