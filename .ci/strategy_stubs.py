"""Write `fbo_flower/strategies/__init__.pyi`: strategies with their options, for editors and type checkers.

    python .ci/strategy_stubs.py [--check]

The classes are made from the records of the algorithms when they are first used, so no source file shows
their options. A test compares the file with what this script would write.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import typing
from importlib import import_module
from pathlib import Path

from fbo_flower.algorithms.registry import BUILT_IN
from fbo_flower.strategies.base import TuningStrategy

TARGET = Path(__file__).resolve().parents[1] / "fbo_flower" / "strategies" / "__init__.pyi"
HEAD = '''"""The strategies with their options; written by `.ci/strategy_stubs.py`."""

{imports}

STRATEGIES: Strategies
'''
ALWAYS = {
    "TuningStrategy as TuningStrategy": "fbo_flower.strategies.base",
    "Strategies": "fbo_flower.strategies.from_records",
    "RoundProgress as RoundProgress": "fbo_flower.strategies.recorder",
    "TuningResult as TuningResult": "fbo_flower.strategies.result",
}


def imports(annotations: str) -> str:
    """Return the imports that the annotations of the base class need, as its own file has them."""
    source = inspect.getsource(import_module(TuningStrategy.__module__))
    found = dict(ALWAYS)
    known = {name.split()[0] for name in ALWAYS}
    for node in ast.parse(source).body:
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            if re.search(rf"\b{alias.name}\b", annotations) and alias.name not in known:
                found[alias.name] = str(node.module)
    lines: dict[str, list[str]] = {}
    for name, module in found.items():
        lines.setdefault(module, []).append(name)
    ours = sorted(module for module in lines if module.startswith("fbo_flower"))
    others = sorted(module for module in lines if not module.startswith("fbo_flower"))
    text = [
        f"from {module} import {', '.join(sorted(lines[module]))}"
        for module in [*others, "", *ours]
        if module
    ]
    text.insert(len(others), "")
    return "\n".join(text)


def default_text(value: object) -> str:
    """Return a default as source text."""
    return json.dumps(value) if isinstance(value, str) else repr(value)


def text_of(annotation: object) -> str:
    """Return a type as source text."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def shared() -> list[str]:
    """Return the parameters of all strategies as the base class writes them."""
    found = []
    for name, parameter in inspect.signature(TuningStrategy.__init__).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            found.append(f"{name}: {parameter.annotation} = {default_text(parameter.default)}")
    return found


def stub() -> str:
    """Return the whole file."""
    common = shared()
    lines = [HEAD.format(imports=imports(" ".join(common))).rstrip()]
    for record in BUILT_IN.values():
        algorithm = record.load()
        hints = typing.get_type_hints(algorithm)
        options = [
            f"{name}: {text_of(hints[name])} = {default_text(default)}"
            for name, default in algorithm.option_defaults().items()
        ]
        lines += ["", f"class {record.class_name}(TuningStrategy):"]
        lines += ["    def __init__(", "        self,", "        *,"]
        lines += [f"        {parameter}," for parameter in [*common, *options]]
        lines += ["    ) -> None: ..."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the file, or say whether it is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file differs")
    if parser.parse_args().check:
        return int(TARGET.read_text() != stub())
    TARGET.write_text(stub())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
