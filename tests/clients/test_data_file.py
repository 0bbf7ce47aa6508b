"""The file that holds a node's data, and the simulated agent's name, which is that of its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fbo_flower import Float, SearchSpace
from fbo_flower.clients import ObjectiveContext, client_app, data_file
from fbo_flower.clients.node import names_of_files
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import RandomSearch
from fbo_flower.study import Study

SPACE = SearchSpace({"x": Float(0, 1)})


def size_of_file(config: dict[str, Any], context: ObjectiveContext) -> float:
    file = data_file(context)
    return 0.0 if file is None else float(file.read_text())


def run_app(num_nodes: int, run_config: dict[str, Any], **changes: Any) -> Study:
    app = client_app(size_of_file, SPACE, seed=0, disclose="trials")
    grid = InProcessGrid(app, num_nodes, run_config=run_config, **changes)
    return RandomSearch(seed=0, num_agents=num_nodes).start(grid, num_rounds=1).study


def test_simulated_agents_are_named_after_their_files(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.csv" for name in ("north", "south, old")]
    for number, file in enumerate(files):
        file.write_text(str(number))
    study = run_app(2, {"data": json.dumps([str(file) for file in files])})
    assert {agent: best["value"] for agent, best in study.best.items()} == {"north": 0.0, "south_ old": 1.0}


def test_the_operators_name_goes_before_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    files = json.dumps([str(tmp_path / "a.csv")] * 2)
    study = run_app(2, {"data": files}, node_configs={0: {"agent": "mine"}})
    assert list(study.best) == ["1", "mine"]


@pytest.mark.parametrize("own", ["", "mnist", '"mnist"', "3", "{}", "[1]"])
def test_an_app_with_a_key_data_of_its_own_keeps_numbers_as_names(own: str) -> None:
    app = client_app(lambda config, context: config["x"], SPACE, seed=0, disclose="trials")
    grid = InProcessGrid(app, 2, run_config={"data": own})
    assert list(RandomSearch(seed=0, num_agents=2).start(grid, num_rounds=1).study.best) == ["0", "1"]


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["data/site-1.csv", "data/site-2.csv"], ["site-1", "site-2"]),
        (["data/a.csv", "data/a.txt"], ["a.csv", "a.txt"]),
        (["north/data.csv", "south/data.csv"], ["north/data", "south/data"]),
        (["x/1/a.csv", "y/1/a.csv", "y/1/b.csv"], ["x/1/a", "y/1/a", "y/1/b"]),
        (["a.csv", "a.csv"], ["0", "1"]),
        (["a,b.csv", "a_b.csv"], ["0", "1"]),
        ([], []),
    ],
)
def test_names_are_different(files: list[str], names: list[str]) -> None:
    assert names_of_files(files) == names


def test_a_long_name_keeps_its_end() -> None:
    (first, second) = names_of_files([f"{'x' * 200}{end}.csv" for end in "ab"])
    assert (len(first), first[-1], second[-1]) == (100, "a", "b")
