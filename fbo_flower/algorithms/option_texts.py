"""The descriptions of an algorithm's options, read from its docstrings, for `help()` and the command line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from fbo_flower.algorithms.protocol import Algorithm


def option_texts(algorithm: type[Algorithm[Any]]) -> Iterator[str]:
    """Yield the lines that describe an algorithm's options, those of its own class first.

    The lines are the "Parameters" sections of every class in its hierarchy that adds options.
    """
    for kind in algorithm.__mro__:
        own = {field.name for field in fields(kind)} if "__dataclass_fields__" in kind.__dict__ else set()
        _, _, parameters = (kind.__doc__ or "").partition("----------\n")
        if own and parameters:
            yield from textwrap.dedent(parameters).strip().splitlines()
