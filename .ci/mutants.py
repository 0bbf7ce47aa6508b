"""How many small errors the tests find: `python .ci/mutants.py numerics --seed 0 --count 20`.

Draws changes of one operator, constant or check at random from a room of the package, makes each in a copy
of the checkout, and runs the tests of that room until one fails: first those of the changed file. Prints a
line per change, and the share that was found. A change that only takes too long counts as found.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = (
    *("fbo_flower", "tests", "examples", "studies", "docs", ".ci"),
    *("pyproject.toml", "README.md", "CITATION.cff", "Makefile"),
)  # fmt: skip
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Yield the fields of a node that can be changed, with the new value."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield "ops", [SWAPS[type(node.ops[0])](), *node.ops[1:]]
    elif isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign) and type(node.op) in SWAPS:
        yield "op", SWAPS[type(node.op)]()
    elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
        yield "value", (not node.value) if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.Return) and ast.unparse(node) not in {"return", "return None"}:
        yield "value", ast.Constant(None)
    elif isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise):
        yield "test", ast.Constant(False)


def sites(path: Path) -> list[tuple[Path, int, str, object]]:
    """Return all changes of a file: its path, the number of the node, the field, the new value."""
    tree = ast.parse(path.read_text("utf-8"))
    return [(path, i, *change) for i, node in enumerate(ast.walk(tree)) for change in changes(node)]


def mutate(path: Path, number: int, field: str, value: object) -> tuple[int, str, str]:
    """Return the line of a change, what changes, and the changed file."""
    tree = ast.parse(path.read_text("utf-8"))
    node = list(ast.walk(tree))[number]
    before = copy.deepcopy(node)
    setattr(node, field, value)
    short = [ast.unparse(n).splitlines()[0][:60] for n in (before, ast.fix_missing_locations(node))]
    return node.lineno, " -> ".join(short), ast.unparse(tree)  # type: ignore[attr-defined]


def tests_of(room: str, path: Path) -> list[str]:
    """Return what pytest runs: the tests of the file, then those of its room."""
    own = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests").rglob(f"test_{path.stem.strip('_')}.py"))
    return [*own, str(Path("tests", room))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=300.0, help="that one change may take")
    given = parser.parse_args()
    drawn = random.Random(given.seed)
    every = [s for path in sorted((ROOT / "fbo_flower" / given.room).rglob("*.py")) for s in sites(path)]
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, Path(folder, name))
        for path, *change in drawn.sample(every, given.count):
            line, what, text = mutate(path, *change)
            file = path.relative_to(ROOT)
            Path(folder, file).write_text(text, "utf-8")
            start = time.monotonic()
            kinds = "not deployment and not kill and not ray and not slow"
            pytest = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", kinds]
            try:
                done = subprocess.run(
                    [*pytest, *tests_of(given.room, path)],
                    cwd=folder, env={**os.environ, "PYTHONPATH": folder},
                    capture_output=True, text=True, timeout=given.seconds, check=False,
                )  # fmt: skip
                last = next((x for x in done.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))), "")
                verdict = "survived" if done.returncode == 0 else "found"
            except subprocess.TimeoutExpired:
                verdict, last = "found", "too slow"
            found += verdict == "found"
            seconds = time.monotonic() - start
            print(f"{verdict:8} {seconds:4.0f} s  {file}:{line}: {what}  {last[:90]}", flush=True)
            shutil.copy(path, Path(folder, file))
    print(f"{found} of {given.count} found in {given.room}, seed {given.seed}")


if __name__ == "__main__":
    main()
