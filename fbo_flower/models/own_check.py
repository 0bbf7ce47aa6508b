"""What a site finds out about its own model before the first one leaves: would the others take it?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt

from fbo_flower.errors import ModelError
from fbo_flower.models.archive import SCHEMA, read_archive
from fbo_flower.models.formats import EVERYTHING, SETUP, is_exported
from fbo_flower.models.schema import BUILDS, EXTENDED


def check_trust(payload: npt.NDArray[Any], trusted: Sequence[str] = ()) -> None:
    """Refuse a model of this site that holds types which sites do not trust; name all of them.

    Parameters
    ----------
    payload : from `pack`, or from `pack_exported`, which holds no types
    trusted : types beyond the built-in list, the operator's

    Raises
    ------
    ModelError
        With the line for `node_config` that the model needs.
    """
    data = payload.tobytes()
    if is_exported(data):
        return
    more, never = set[str](), set[str]()
    for node in _nodes(json.loads(read_archive(data, EVERYTHING)[SCHEMA])):
        loader, name = node["__loader__"], f"{node.get('__module__')}.{node.get('__class__')}"
        if name not in BUILDS.get(loader, ()) and name not in trusted:
            (more if loader in EXTENDED else never).add(name)
    if never:
        raise ModelError(
            f"{SETUP}the model holds {', '.join(sorted(never))}, which no site can trust; export it as onnx"
        )
    if more:
        line = ",".join(sorted({*trusted, *more}))
        raise ModelError(f'{SETUP}set in node_config of every site: trusted = "{line}"')


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if "__loader__" in one:
                yield one
            todo.extend(one.values())
        elif isinstance(one, list):
            todo.extend(one)
