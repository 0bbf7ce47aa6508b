"""What a class of algorithms must be.

Python takes a misspelt method, an option without a type or a message without `@dataclass` for something else,
and says nothing. `check_definition` refuses them when an algorithm of the class is made for the first time.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from types import FunctionType
from typing import Any, get_type_hints

import numpy as np

from fbo_flower.algorithms.messages import AXES, Content, Spec, arrays_of, length_of, value_of
from fbo_flower.algorithms.options import Configurable
from fbo_flower.errors import ConfigError, kind_of

DATACLASS = "@dataclass(frozen=True, kw_only=True)"
_LIKE = 0.85  # how alike two names are of which one is probably meant to be the other
_CONTENT_MEMBERS = {name: member for name, member in vars(Content).items() if not name.startswith("_")}
_CONTENT_HOOKS = {n for n, m in _CONTENT_MEMBERS.items() if isinstance(m, classmethod)} - {"of", "of_step"}


@cache
def check_definition(kind: type[Any], base: type[Any]) -> None:
    """Raise ConfigError if a subclass of `base`, which is `Algorithm`, loses something that it defines.

    The error names the class and the member, and what to write instead.
    """
    own = [one for one in kind.__mro__ if issubclass(one, base) and one is not base]
    members = {name: inspect.getattr_static(base, name, None) for name in {"name", *dir(base)}}
    members = {name: member for name, member in members.items() if not name.startswith("_")}
    for one in own:
        for problem in _problems(one, base, members):
            raise ConfigError(f"{one.__name__}.{problem}")
    for name in sorted(kind.__abstractmethods__):
        raise ConfigError(
            f"{kind.__name__}: expected a method `{name}{_names(members[name])}`, got none; "
            "`Independent` has one for agents that tune alone"
        )
    options = {option.name: option for option in fields(kind)}
    for name in sorted(options.keys() & members.keys()):
        if not isinstance(members[name], property):
            raise ConfigError(
                f"{kind.__name__}.{name}: expected a class variable, got an option; write "
                f"`{name}: ClassVar[{type(options[name].default).__name__}] = {options[name].default!r}`"
            )
    for option in options.values():
        if option.default is MISSING:
            got = "none" if option.default_factory is MISSING else "a default_factory"
            raise ConfigError(
                f"{kind.__name__}.{option.name}: expected an option with a default, got {got}; write "
                f"`{option.name}: {_text(option.type)} = ...`"
            )
    if not isinstance(getattr(kind, "name", None), str):
        raise ConfigError(
            f"{kind.__name__}: expected a name, as users type it, got none; write `name: ClassVar[str] = ...`"
        )
    for which in ("task_content", "report_content"):
        content = getattr(kind, which)
        if not (isinstance(content, type) and issubclass(content, Content)):
            raise ConfigError(f"{kind.__name__}.{which}: expected a subclass of Content, got {content!r}")
        for problem in _content_problems(kind, content):
            raise ConfigError(f"{content.__name__}.{problem}")


def _problems(kind: type[Any], base: type[Any], members: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the members that a class defines itself."""
    annotated = inspect.get_annotations(kind)
    known = {option.name for option in fields(kind)}
    for name in annotated:
        if "ClassVar" not in _text(annotated[name]) and name not in vars(kind).get(
            "__dataclass_fields__", {}
        ):
            yield f"{name}: expected an option of a dataclass; write {DATACLASS} above the class"
    for name in known & vars(kind).keys() - annotated.keys():
        option = kind.__dataclass_fields__[name]
        yield (
            f"{name}: expected an option with its type; write `{name}: {_text(option.type)} = "
            f"{vars(kind)[name]!r}` and {DATACLASS} above the class"
        )
    for name in vars(kind).keys() & _CONTENT_HOOKS - known:
        yield f"{name}: expected it in the class of a content, got it in the algorithm; move it there"
    yield from _replaced(kind, base, members, {**annotated, **vars(kind)}.keys() - known)


def _replaced(
    kind: type[Any], base: type[Any], members: Mapping[str, Any], names: Iterable[str]
) -> Iterator[str]:
    """Yield what is wrong with members of a class that replace one of its base, or should."""
    for name in names:
        if name.startswith("_"):
            continue
        if name in members:
            yield from _overridden(name, vars(kind).get(name), members[name])
            continue
        close = get_close_matches(name, members, n=1, cutoff=_LIKE)
        if close and inspect.getattr_static(kind, close[0], None) is members[close[0]]:
            yield (
                f"{name}: expected a member of {base.__name__}, which has none of this name; did you mean "
                f"{close[0]}? begin the name of a helper with an underscore"
            )


def _overridden(name: str, member: Any, original: Any) -> Iterator[str]:
    """Yield what is wrong with a member that replaces one of the base class."""
    if isinstance(original, classmethod):
        if not isinstance(member, classmethod):
            yield f"{name}: expected a class method, got {kind_of(member)}; write @classmethod above it"
            return
        member, original = member.__func__, original.__func__
    if not isinstance(original, FunctionType):
        if isinstance(member, FunctionType):
            what = "@property above the method" if isinstance(original, property) else "a class variable"
            yield f"{name}: expected {what}, got a method"
        return
    if not isinstance(member, FunctionType):
        yield f"{name}: expected a method {_names(original)}, got {member!r}"
        return
    expected, got = inspect.signature(original), inspect.signature(member)
    wanted = expected.parameters.values()
    places = [p.name for p in wanted if p.kind is not p.KEYWORD_ONLY]
    named = {p.name: None for p in wanted if p.kind is p.KEYWORD_ONLY}
    try:
        got.bind(*places, **named)
    except TypeError as error:
        yield f"{name}: expected ({', '.join([*places, *named])}), got {_names(member)}: {error}"


def _names(method: Any) -> str:
    return f"({', '.join(inspect.signature(method).parameters)})"


def _text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", repr(annotation))


def check_options(algorithm: Configurable) -> None:
    """Raise ConfigError if an option is another value after its way through JSON, as agents get it."""
    for option in fields(algorithm):
        value = getattr(algorithm, option.name)
        for part in value if isinstance(value, tuple) else (value,):
            finite = isinstance(part, float) and np.isfinite(part)
            if part is not None and type(part) not in (bool, int, str) and not finite:
                raise ConfigError(
                    f"{option.name}: expected an option of {algorithm.name} to be None, a bool, a finite "
                    f"number, a text or a tuple of these, which agents get as JSON, got {kind_of(part)}"
                )


# -- messages ------------------------------------------------------------------------------------------


def _content_problems(kind: type[Any], content: type[Content]) -> Iterator[str]:
    """Yield what is wrong with the fields of a message."""
    known = {field.name: field for field in fields(content)} if is_dataclass(content) else {}
    for name in known.keys() & _CONTENT_MEMBERS.keys():
        yield f"{name}: expected another name, because `Content` has a member of this one"
    for one in content.__mro__[: content.__mro__.index(Content)]:
        yield from _replaced(one, Content, _CONTENT_MEMBERS, vars(one).keys() - known)
    try:
        hints, arrays = get_type_hints(content, include_extras=True), arrays_of(content)
    except NameError as error:
        yield f"{error.name}: expected a name of {content.__module__}, where types are looked up"
        return
    for name, hint in hints.items():
        if "ClassVar" in str(hint):
            continue
        if name not in known:
            yield f"{name}: expected a field of a dataclass; write {DATACLASS} above the class"
        elif name in arrays:
            if known[name].default is not None:
                got = "none" if known[name].default is MISSING else repr(known[name].default)
                yield f"{name}: expected the default None of an array, got {got}"
            yield from _spec_problems(kind, name, arrays[name])
        elif hint not in (bool, int, float, str):
            yield (
                f"{name}: expected bool, int, float or str, or an array as "
                f'`{name}: Annotated[np.ndarray | None, real("D")] = None`, got {_text(hint)}'
            )
        elif type(known[name].default) is not hint:
            yield f"{name}: expected a default of the type {hint.__name__}, got {known[name].default!r}"


def _spec_problems(kind: type[Any], name: str, spec: Spec) -> Iterator[str]:
    """Yield what is wrong with the specification of an array."""
    task_arrays, task_scalars = arrays_of(kind.task_content), get_type_hints(kind.task_content)
    tasks = kind.task_content.__name__
    for length in (*spec.shape, spec.most, spec.bound, spec.only_if):
        if not isinstance(length, str) or (length in AXES and length != spec.bound):
            continue
        if array := length_of(length):
            if array not in task_arrays:
                yield f"{name}: expected an array of {tasks} in {length!r}, got {array!r}"
        elif scalar := value_of(length):
            if scalar not in task_scalars:
                yield f"{name}: expected a scalar of {tasks} in {length!r}, got {scalar!r}"
        elif not hasattr(kind, length):
            yield f"{name}: expected an option or property of {kind.__name__}, got {length!r}"
    if spec.bound is not None and None in spec.shape:
        yield (
            f'{name}: expected a summable array whose lengths are known, got None; write a number, "D", '
            '"F", an option\'s name, "len(ARRAY)" or "value(SCALAR)" of the task'
        )
