"""Options of an algorithm: fields of a frozen dataclass, checked at construction, sent as JSON."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Self, cast

import numpy as np

from fbo_flower.errors import ConfigError, did_you_mean
from fbo_flower.space.checks import check_flag, check_integer, check_number, check_options, plain, show
from fbo_flower.space.copies import own
from fbo_flower.space.space import SearchSpace


class Settings:
    """Base of frozen dataclasses whose fields say what they may be, and then hold the plain value of it.

    A field is `bounded`, `integer`, `choice`, `flag`, or `checked` by a function. An array or a list is held
    as a tuple, so that the object can be hashed and sent as JSON.
    """

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Raise ConfigError, with the nearest name, if an option is unknown."""
        check_options(cls, options)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Raise ConfigError if a field is not what it may be; subclasses compare several fields."""
        for name, check in _checks(cast(Any, type(self))).items():
            value = plain(getattr(self, name))
            if isinstance(value, list | tuple | np.ndarray):
                value = tuple(map(plain, value))
            if check is not None and (value is not None or getattr(type(self), name, 0) is not None):
                found = check(name, value)
                value = value if found is None else found
            object.__setattr__(self, name, own(value))  # a list or a dict of the caller could change later


@cache
def _checks(kind: Any) -> dict[str, Callable[[str, object], object] | None]:
    """Return field -> its check; a check stays where a subclass changes a default."""
    checks: dict[str, Callable[[str, object], object] | None] = {}
    for base in reversed(kind.__mro__):
        for name, option in base.__dict__.get("__dataclass_fields__", {}).items():
            checks[name] = option.metadata.get("check", checks.get(name))
    return checks


@dataclass(frozen=True, kw_only=True)
class Configurable(Settings):
    """A frozen dataclass whose fields are options that are sent as JSON."""

    name: ClassVar[str]

    def check(self, space: SearchSpace) -> None:
        """Raise ConfigError if the options do not fit the search space."""
        return

    def options(self) -> dict[str, object]:
        """Return the options as JSON values."""
        found: dict[str, object] = {}
        for option in fields(self):
            value = own(getattr(self, option.name))
            found[option.name] = list(value) if isinstance(value, tuple) else value
        return found

    @classmethod
    def option_defaults(cls) -> dict[str, object]:
        """Return every option with its default."""
        return {f.name: f.default for f in fields(cls) if f.default is not MISSING}

    @classmethod
    def option_meanings(cls) -> dict[str, str]:
        """Return option -> what it means, from the "Parameters" sections of its own class and its bases."""
        meanings: dict[str, str] = {}
        for kind in cls.__mro__:
            if "__dataclass_fields__" in kind.__dict__:
                _, _, parameters = (kind.__doc__ or "").partition("----------\n")
                for entry in re.split(r"\n(?=\S)", textwrap.dedent(parameters).strip()):
                    names, _, text = entry.partition(" : ")
                    meanings = dict.fromkeys(names.split(", "), " ".join(text.split())) | meanings
        return {name: meanings[name] for name in cls.option_defaults()}

    @classmethod
    def option_texts(cls) -> Iterator[str]:
        """Yield lines that explain the options; `help()` and the command line show them."""
        for name, meaning in cls.option_meanings().items():
            yield from textwrap.wrap(f"{name} : {meaning}", 110, subsequent_indent="    ")

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Any:
        """Return an object with options that were read from JSON.

        Raises
        ------
        ConfigError
            If an option is unknown (the message lists the known ones) or its value is not allowed.
        """
        return cls(**options)


def canonical_json(value: object) -> str:
    """Return compact JSON with sorted keys, the same text on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise ConfigError unless `value` is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        close = did_you_mean(value, choices)
        raise ConfigError(f"{name}: expected one of {', '.join(choices)}, got {show(value)}{close}")


def check_secure_sums(value: object) -> None:
    """Raise ConfigError unless `value` is 0 (no secure sums) or a number of agents of at least 2."""
    if check_integer("secure_sums", value, 0, 10**6) == 1:
        raise ConfigError("secure_sums: expected 0, or a number of agents from 2 on, got 1")


# -- fields; the default may be MISSING, and None is allowed where it is the default --------------------


def bounded(default: Any, low: float, high: float = np.inf) -> Any:
    """Return the field of a number in `[low, high]`."""
    return _field(default, lambda name, value: check_number(name, value, low, high))


def integer(default: Any, low: float, high: float = np.inf) -> Any:
    """Return the field of an integer in `[low, high]`."""
    return _field(default, lambda name, value: check_integer(name, value, low, high))


def choice(default: Any, choices: Sequence[str]) -> Any:
    """Return the field of one of `choices`."""
    return _field(default, lambda name, value: check_choice(name, value, choices))


def flag(default: bool) -> Any:
    """Return the field of True or False."""
    return _field(default, check_flag)


def checked(default: object, check: Callable[[Any], object]) -> Any:
    """Return a field for which `check` raises ConfigError, or returns the value to hold; None: as it is."""
    return _field(default, lambda name, value: check(value))


def _field(default: object, check: Callable[[str, object], object]) -> Any:
    return field(default=default, metadata={"check": check})
