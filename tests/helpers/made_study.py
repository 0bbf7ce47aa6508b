"""Studies made of rows; what a row leaves out is as in a run in which nothing happened."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fbo_flower.space import Categorical, Float, Int, SearchSpace
from fbo_flower.study import Study
from fbo_flower.study.schema import (
    JUDGEMENTS,
    MODELS,
    RECOMMENDATIONS,
    REGRET,
    ROUNDS,
    TIMES,
    TRIALS,
    trial_columns,
)
from fbo_flower.study.table import Table

Rows = Iterable[Mapping[str, Any]]
COLUMNS = {
    "trials": TRIALS, "rounds": ROUNDS, "regret": REGRET, "times": TIMES, "models": MODELS,
    "judgements": JUDGEMENTS, "recommendations": RECOMMENDATIONS,
}  # fmt: skip
USUAL = {
    "trials": {"round": 1, "trial": 0, "pulls": 1, "config": {}, "failure": "", "regret": math.nan},
    "rounds": {**dict.fromkeys(ROUNDS, 0), "seconds": 1.0, "mean_incumbent": 0.5, "best": 0.9, "reasons": ""},
    "recommendations": {"mean": math.nan},
    "models": dict.fromkeys(MODELS, math.nan)
    | {"failure": "", "on_front": False, "shipped": False, "model": ""},
}

PAGE_SPACE = SearchSpace(
    {"lr": Float(1e-4, 1.0, log=True), "depth": Int(1, 9), "kind": Categorical(["a", "b", "c"])}
)


def made_study(runs, **tables):
    """Return a study of these runs; `tables` are rows by the name of their table."""
    settings = {"schema": 2, "name": "s", "created": "2026-01-01T00:00:00+00:00", "versions": {"numpy": "2"}}
    made = {name: _table(name, tables.get(name, ())) for name in {"trials": 0, "rounds": 0} | tables}
    return Study({**settings, "runs": list(runs)}, **made)


def changed(study, **tables):
    """Return a study with other rows in these tables; recommendations are made anew from the trials."""
    kept = {name: getattr(study, name) for name in COLUMNS if name != "recommendations"}
    return Study(study.settings, **kept | {name: _table(name, rows) for name, rows in tables.items()})


def a_page_study(
    num_agents, num_trials, space=PAGE_SPACE, *, algorithms=("fts",), name="{}", failure="", minimize=False
):
    """Return a study whose values depend on its first parameter; `failure` is why second trials failed."""
    rng = np.random.default_rng(0)
    trials, rounds = [], []
    for algorithm in algorithms:
        for agent in range(num_agents):
            for trial in range(num_trials):
                point = rng.random(space.dimension)
                failed = bool(failure) and trial == 1
                trials.append(
                    {"algorithm": algorithm, "agent": name.format(agent), "round": trial + 1, "trial": trial}
                    | {"config": space.decode(point), "failure": failure if failed else ""}
                    | {"value": math.nan if failed else float(point[0] + 0.1 * rng.normal())}
                )
        for number in range(1, num_trials + 1):
            traffic = {"bytes_down": 400, "bytes_up": 100, "floats_down": 5.0, "floats_up": 1.0}
            rounds.append({"algorithm": algorithm, "round": number, "replies": 1} | traffic)
    runs = [
        {"algorithm": algorithm.split()[0], "label": algorithm, "num_agents": num_agents}
        | {"space": space.to_json(), "metric": "accuracy", **({"minimize": True} if minimize else {})}
        for algorithm in algorithms
    ]
    return made_study(runs, trials=trials, rounds=rounds)


def _table(name, rows):
    made = [{**USUAL.get(name, {}), **row} for row in rows]
    columns = trial_columns(made[0]) if name == "trials" and made else COLUMNS[name]
    return Table.from_rows(made, columns)
