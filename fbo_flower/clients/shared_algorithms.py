"""The algorithm that a message names; the agents of a process share it, so that it is made once."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from fbo_flower.algorithms import Algorithm, with_secure_sums
from fbo_flower.algorithms.registry import find
from fbo_flower.algorithms.schema import Schema
from fbo_flower.errors import WireError
from fbo_flower.space.space import SearchSpace

_LONGEST = 20_000  # characters of the options of an algorithm that is kept for the next message


def algorithm_of(name: str, options: str, space: SearchSpace) -> tuple[Algorithm[Any], Schema]:
    """Return an algorithm that fits the space, and its schema of tasks.

    Parameters
    ----------
    options : JSON, as the message holds them
    """
    make = _new if len(options) > _LONGEST else _shared
    return make(find(name).load(), options, space)


def _new(kind: type[Algorithm[Any]], options: str, space: SearchSpace) -> tuple[Algorithm[Any], Schema]:
    algorithm = with_secure_sums(kind.from_options(_options(options)))
    algorithm.check(space)
    return algorithm, algorithm.task_schema(space)


_shared = lru_cache(maxsize=64)(_new)


def _options(text: str) -> dict[str, object]:
    try:
        options = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"options: expected a JSON object, got {text[:80]!r}") from error
    if not isinstance(options, dict):
        raise WireError(f"options: expected a JSON object, got {text[:80]!r}")
    return options
