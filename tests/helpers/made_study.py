"""Studies made of rows; what a row leaves out is as in a run in which nothing happened."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from fbo_flower.study import Study
from fbo_flower.study.schema import JUDGEMENTS, MODELS, RECOMMENDATIONS, REGRET, ROUNDS, TIMES, TRIALS
from fbo_flower.study.table import Table

Rows = Iterable[Mapping[str, Any]]
COLUMNS = {
    "trials": TRIALS, "rounds": ROUNDS, "regret": REGRET, "times": TIMES, "models": MODELS,
    "judgements": JUDGEMENTS, "recommendations": RECOMMENDATIONS,
}  # fmt: skip
USUAL: dict[str, dict[str, Any]] = {
    "trials": {"round": 1, "trial": 0, "pulls": 1, "config": {}, "failure": "", "regret": math.nan},
    "rounds": {**dict.fromkeys(ROUNDS, 0), "seconds": 1.0, "mean_incumbent": 0.5, "best": 0.9, "reasons": ""},
    "models": dict.fromkeys(MODELS, math.nan)
    | {"failure": "", "on_front": False, "shipped": False, "model": ""},
}


def made_study(runs: Iterable[Mapping[str, Any]], **tables: Rows) -> Study:
    """Return a study of these runs; `tables` are rows by the name of their table."""
    settings = {"schema": 2, "name": "s", "created": "2026-01-01T00:00:00+00:00", "versions": {"numpy": "2"}}
    made = {name: _table(name, tables.get(name, ())) for name in {"trials": 0, "rounds": 0} | tables}
    return Study({**settings, "runs": list(runs)}, **made)


def changed(study: Study, **tables: Rows) -> Study:
    """Return a study with other rows in these tables; recommendations are made anew from the trials."""
    kept = {name: getattr(study, name) for name in COLUMNS if name != "recommendations"}
    return Study(study.settings, **kept | {name: _table(name, rows) for name, rows in tables.items()})


def _table(name: str, rows: Rows) -> Table:
    return Table.from_rows([{**USUAL.get(name, {}), **row} for row in rows], COLUMNS[name])
