"""Every report shows every finite value: no error, no warning, no inf or NaN."""

import json
import re
import sys
from datetime import UTC, datetime

import numpy as np
import pytest
from made_study import made_study

from fbo_flower import Float, SearchSpace, simulate
from fbo_flower.algorithms import HCT
from fbo_flower.cli.watch import state_of_study
from fbo_flower.reports.page import html_page
from fbo_flower.reports.summary import summarise, to_markdown
from fbo_flower.reports.traffic import privacy_page
from fbo_flower.simulation.runner import regret_table
from fbo_flower.study import Study

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("few_trees")]
MAX, TINY = sys.float_info.max, 5e-324
VALUES = {
    "penalty": [MAX, 0.1, 0.3, 0.2],
    "both ends": [MAX, -MAX, 0.0, MAX],
    "one value": [-MAX] * 4,
    "subnormal": [TINY, 2 * TINY, 0.0, -TINY],
    "huge and tiny": [1e308, TINY, 1.0, -1e308],
    "failures only": [np.nan] * 4,
}
SMALL_HCT = HCT(budget=200, max_evaluations_per_round=40)
SPACE = SearchSpace({"x": Float(TINY, MAX, log=True), "z": Float(0.0, MAX), "k": Float(-1e-320, 1e-320)})


def a_study(values, *, minimize=False, regret=False, **run):
    """Return a study of two algorithms and two agents; every second agent has the values reversed."""
    trials = []
    for algorithm in ("ei", "random"):
        for agent, own in (("0", values), ("1", values[::-1])):
            for trial, value in enumerate(own):
                config = SPACE.decode(np.full(3, (trial + 0.5) / len(own)))
                row = {"algorithm": algorithm, "agent": agent, "trial": trial, "config": config}
                failed = bool(np.isnan(value))
                row |= {"value": value, "failure": "diverged" if failed else ""}
                row |= {"regret": abs(value)} if regret else {}
                if "objectives" in run:
                    row |= {"outputs": {} if failed else {"a": value, "b": -value}, "feasible": not failed}
                trials.append(row)
    bests = [row["value"] for row in trials]
    first = {"round": 1, "bytes_down": 9, "best": max(bests), "mean_incumbent": bests[0]}
    rounds = [{"algorithm": name, **first} for name in ("ei", "random")]
    settings = {"num_agents": 2, "space": SPACE.to_json(), "minimize": minimize, **run}
    runs = [{"algorithm": name, **settings} for name in ("ei", "random")]
    keys = ("algorithm", "agent", "trial")
    times = [
        {k: t[k] for k in keys} | {"started": 1.0 * t["trial"], "ended": t["trial"] + 1.0} for t in trials
    ]
    return made_study(runs, trials=trials, rounds=rounds, times=times)


def drawn(figure):
    """Draw a figure and return its texts."""
    from matplotlib.text import Text

    figure.set_dpi(30)
    figure.canvas.draw()
    return "\n".join(text.get_text() for text in figure.findobj(Text) if text.get_visible())


def saved(study, directory):
    study.save(directory)
    assert Study.load(directory) == study
    return (directory / "best.json").read_text()


OUTPUTS = {
    "picture": lambda study, _: drawn(study.plot()),
    "picture by time": lambda study, _: drawn(study.plot("time")),
    "page": lambda study, _: re.sub(r"<(style|script)>.*?</\1>", "", html_page(study), flags=re.S),
    "table": lambda study, _: to_markdown(summarise(study)),
    "privacy": lambda study, _: privacy_page(study),
    "watch": lambda study, _: "\n".join(state_of_study(study, "ei").lines("ended", datetime.now(UTC))),
    "best.json": saved,
}


def check_outputs(study, directory):
    """Check that all outputs are made without a warning, and hold only finite numbers."""
    found = {}
    for name, output in OUTPUTS.items():
        found[name] = output(study, directory)
        wrong = re.findall(r"(?i)(?<![\w-])(?:inf|nan|infinity)(?![\w-])", found[name])
        assert not wrong, f"{name}: {wrong}"
        assert not re.search(r"\d{40}", found[name]), f"{name}: a number without an exponent"
    return found


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_every_finite_value_is_shown_in_fronts_and_with_regret(values, tmp_path):
    study = a_study(values, objectives={"a": "max", "b": "max"}, limits={"a": MAX})
    check_outputs(study, tmp_path)
    assert np.isfinite(study.front("0").hypervolume)
    study = a_study(values, minimize=True, regret=True)
    more = {"regret": regret_table(study.trials), "times": study.times}
    study = made_study(study.settings["runs"], trials=study.trials, **more)
    best = json.loads(check_outputs(study, tmp_path)["best.json"])
    if np.isfinite(values).any():
        assert best["ei"]["0"]["value"] == min(values)


@pytest.mark.parametrize("algorithm", ["fed-ei", "fts", SMALL_HCT])
def test_algorithms_work_with_every_finite_value(algorithm):
    values = VALUES["both ends"]

    def objective(config, _data):
        return values[int(config["x"] * 1000) % len(values)]

    space = SearchSpace({"x": Float(0, 1)})
    study = simulate(objective, space, 2, algorithm, 6, engine="inline", minimize=True)
    assert any(study.best_value == pytest.approx(value) for value in values)
    assert not np.isinf([study.rounds["best"], study.rounds["mean_incumbent"]]).any()
