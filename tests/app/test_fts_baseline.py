"""`examples/fts-baseline`: the layout of Flower's baselines, its table, and a run of its app."""

import os
import re
import subprocess
import sys
import tomllib

import yaml
from flower_runtime import ROOT
from flwr.app import Context, RecordDict

from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.study import Study

EXAMPLE = ROOT / "examples" / "fts-baseline"
PAGE = (EXAMPLE / "README.md").read_text()
CONFIG = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


def test_its_layout_is_that_of_flowers_baselines():
    _, head, text = PAGE.split("---\n", 2)
    assert set(yaml.safe_load(head)) == {"title", "url", "labels", "dataset"}
    titles = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert titles == [
        "About this baseline",
        "Experimental setup",
        "Environment setup",
        "Running the experiments",
        "Expected results",
    ]
    for name in ("client_app", "server_app", "dataset", "model", "strategy"):
        assert (EXAMPLE / "fts_baseline" / f"{name}.py").is_file()


def test_the_command_of_the_page_prints_its_table():
    command = [sys.executable, "-m", "fts_baseline.compare", "--seeds", "2", "--agents", "3", "--rounds", "3"]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLE), str(ROOT)])}
    done = subprocess.run(command, env=path, capture_output=True, text=True, check=True)
    rows = [line.split(" | ")[0] for line in done.stdout.splitlines() if line.startswith("| ")]
    assert rows == ["| algorithm", "| random", "| ts", "| fts", "| fts-portfolio"]
    assert all(f"{row} | 0." in PAGE for row in rows[1:])
    first = [
        re.findall(r"0\.\d+", line)[0] for line in done.stdout.splitlines() if re.match(r"\| [rtf]", line)
    ]
    assert len(set(first)) == 1, "all begin at the same points"


def test_the_app_runs_each_algorithm(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from fts_baseline import client_app, server_app
    from fts_baseline.strategy import STRATEGIES

    for algorithm in STRATEGIES:
        config = {**CONFIG, "num-agents": 3, "num-rounds": 2, "algorithm": algorithm}
        config["out"] = str(tmp_path / algorithm)
        grid = InProcessGrid(client_app.app, 3, run_config=config)
        server_app.app(grid, Context(1, 0, {}, RecordDict(), config))
        study = Study.load(config["out"])
        assert study.settings["runs"][0]["algorithm"] == algorithm.removesuffix("-portfolio")
        assert study.rounds["replies"].tolist() == [3, 3]
        assert not any(study.trials["failure"].tolist())
    for name in [name for name in sys.modules if name.startswith("fts_baseline")]:
        monkeypatch.delitem(sys.modules, name)
