"""Figures: what is drawn, not how it looks."""

from __future__ import annotations

import builtins
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fbo_flower.algorithms.registry import BUILT_IN
from fbo_flower.errors import ConfigError
from fbo_flower.reports.line_axes import _spread
from fbo_flower.reports.plots import figure, plot_study
from fbo_flower.reports.styles import algorithm_style
from fbo_flower.study import Study
from fbo_flower.study.schema import REGRET, ROUNDS, TRIALS
from fbo_flower.study.table import Table

pytest.importorskip("matplotlib")


def a_study(
    algorithms: tuple[str, ...] = ("ts", "fts", "rgpe"),
    *,
    num_agents: int = 4,
    num_evaluations: int = 12,
    with_regret: bool = False,
    num_bytes: int = 1000,
    floats: float = 40.0,
    **run: Any,
) -> Study:
    rng = np.random.default_rng(0)
    trials, regret, rounds = [], [], []
    for algorithm in algorithms:
        for agent in map(str, range(num_agents)):
            values = rng.random(num_evaluations)
            for k, value in enumerate(values.tolist()):
                row: dict[str, Any] = {"algorithm": algorithm, "agent": agent}
                trials.append(
                    row
                    | {
                        "round": k,
                        "trial": k,
                        "pulls": 1,
                        "config": {},
                        "value": value,
                        "failure": "",
                        "regret": math.nan,
                    }
                )
                known = {"cumulative": (1 - values[: k + 1]).sum(), "simple": (1 - values[: k + 1]).min()}
                regret.append(row | {"evaluations": k + 1} | known)
        counts: dict[str, Any] = dict.fromkeys(
            ("tasks", "replies", "failures", "refused", "failed_trials"), 0
        )
        traffic = {"bytes_down": num_bytes, "bytes_up": num_bytes, "seconds": 1.0}
        traffic |= {"floats_down": floats, "floats_up": floats}
        means: dict[str, Any] = {"mean_incumbent": 0.5, "best": 0.9, "reasons": ""}
        rounds += [{"algorithm": algorithm, "round": k} | counts | traffic | means for k in (1, 2)]
    described = {"problem": "digits", "num_agents": num_agents, "num_initial": 3, "metric": "accuracy"} | run
    return Study(
        {"schema": 2, "runs": [{"algorithm": algorithm, **described} for algorithm in algorithms]},
        Table.from_rows(trials, TRIALS),
        Table.from_rows(rounds, ROUNDS),
        Table.from_rows(regret if with_regret else [], REGRET),
    )


def test_there_is_one_line_per_algorithm_with_its_own_style() -> None:
    ax = figure(a_study()).axes[0]
    assert [line.get_label() for line in ax.lines] == ["ts", "fts", "rgpe"]
    assert [line.get_color() for line in ax.lines] == [
        algorithm_style(name).color for name in ("ts", "fts", "rgpe")
    ]
    assert [line.get_linestyle() for line in ax.lines] == ["--", "-", "-"]
    assert len(ax.collections) == 3  # bands
    assert ax.get_ylabel() == "Best accuracy so far"
    assert {"ts", "fts", "rgpe", "initial design"} <= {text.get_text() for text in ax.texts}


def test_a_line_is_the_mean_of_the_incumbents() -> None:
    study = a_study(("fts",))
    values = study.trials["value"].reshape(4, 12)
    line = figure(study).axes[0].lines[0]
    np.testing.assert_allclose(
        np.asarray(line.get_ydata()), np.maximum.accumulate(values, axis=1).mean(axis=0)
    )
    np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 13))


def test_styles_of_known_algorithms_differ() -> None:
    assert len({record.style for record in BUILT_IN.values()} - {None}) == len(BUILT_IN)


def test_an_algorithm_without_a_style_keeps_the_one_it_got() -> None:
    alone = figure(a_study(("new",))).axes[0].lines[0]
    line = figure(Study.merge([a_study(("fts",)), a_study(("new",))])).axes[0].lines[1]
    assert (line.get_color(), line.get_linestyle()) == (alone.get_color(), alone.get_linestyle())


def test_labels_of_one_algorithm_get_styles_of_their_own() -> None:
    study = Study.merge(
        [a_study(("fts",)), a_study(("fts",)).relabel("fts", "fts, again"), a_study(("new",))]
    )
    lines = figure(study).axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 3
    assert lines[0].get_color() == algorithm_style("fts").color


def test_awful_first_evaluations_do_not_flatten_the_curves() -> None:
    study = a_study(("fts",), num_evaluations=20)
    values = np.tile(np.r_[-1e6, -1e6, -50.0, np.linspace(0.8, 0.9, 17)], 4)
    rows = [{**row, "value": value} for row, value in zip(study.trials, values.tolist(), strict=True)]
    ax = figure(Study(study.settings, Table.from_rows(rows, TRIALS), study.rounds)).axes[0]
    low, high = ax.get_ylim()
    assert 0.6 < low < 0.85
    assert 0.9 < high < 1.0


def test_known_regret_is_shown_on_a_logarithmic_axis() -> None:
    simple, cumulative, *_ = figure(a_study(with_regret=True)).axes
    assert (simple.get_yscale(), cumulative.get_yscale()) == ("log", "linear")
    assert (len(simple.lines), len(cumulative.lines)) == (3, 3)
    assert cumulative.get_ylabel() == "Cumulative regret"


@pytest.mark.filterwarnings("error")
def test_regret_of_zero_does_not_break_the_logarithm(tmp_path: Path) -> None:
    study = a_study(("fts",), with_regret=True)
    rows = [{**row, "simple": 0.0 if row["evaluations"] > 5 else 0.1} for row in study.regret]
    study = Study(study.settings, study.trials, study.rounds, Table.from_rows(rows, REGRET))
    plot_study(study, tmp_path / "a.png")
    ax = figure(study).axes[0]
    assert np.asarray(ax.lines[0].get_ydata()).min() == ax.get_ylim()[0] > 0


def test_traffic_is_shown_if_there_is_any() -> None:
    assert len(figure(a_study()).axes) == 3
    assert len(figure(a_study(floats=0.0)).axes) == 2
    assert len(figure(a_study(num_bytes=0, floats=0.0)).axes) == 1
    assert len(figure(a_study(with_regret=True)).axes) == 4


def with_floats(study: Study, floats: dict[str, list[float]]) -> Study:
    """Return the study with other floats in the rounds of each algorithm, half of them each way."""
    rows = [
        {**row, **dict.fromkeys(("floats_down", "floats_up"), floats[row["algorithm"]][row["round"] - 1] / 2)}
        for row in study.rounds
    ]
    return Study(study.settings, study.trials, Table.from_rows(rows, ROUNDS))


def test_floats_are_added_up_by_round_over_all_agents_and_both_ways() -> None:
    study = with_floats(a_study(), {"ts": [0.0, 0.0], "fts": [20.0, 30.0], "rgpe": [6.0, 0.0]})
    ax = figure(study).axes[1]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Round", "Floats exchanged, all agents")
    assert [line.get_label() for line in ax.lines] == ["fts", "rgpe"]
    assert [np.asarray(line.get_ydata()).tolist() for line in ax.lines] == [[20.0, 50.0], [6.0, 6.0]]
    assert np.asarray(ax.lines[0].get_xdata()).tolist() == [1.0, 2.0]
    assert ax.get_yscale() == "linear"


def test_algorithms_without_floats_are_named_in_a_note() -> None:
    known = {"ts": [0.0, 0.0], "fts": [20.0, 30.0], "rgpe": [math.nan, math.nan]}
    texts = [text.get_text() for text in figure(with_floats(a_study(), known)).axes[1].texts]
    assert "nothing exchanged: ts\nnot counted: rgpe" in texts


def test_floats_that_are_far_apart_are_shown_on_a_logarithmic_axis() -> None:
    study = with_floats(a_study(), {"ts": [0.0, 0.0], "fts": [2e5, 3e5], "rgpe": [0.0, 8.0]})
    ax = figure(study).axes[1]
    assert ax.get_yscale() == "log"
    np.testing.assert_array_equal(np.asarray(ax.lines[1].get_ydata()), [math.nan, 8.0])


def test_without_any_count_of_floats_there_is_no_such_picture() -> None:
    unknown = {name: [math.nan, math.nan] for name in ("ts", "fts", "rgpe")}
    assert len(figure(with_floats(a_study(), unknown)).axes) == 2


def test_a_single_agent_has_a_line_without_a_band() -> None:
    ax = figure(a_study(num_agents=1)).axes[0]
    assert (len(ax.lines), len(ax.collections)) == (3, 0)


def test_agents_that_keep_their_trials_are_shown_by_round() -> None:
    study = a_study(("fts",))
    ax = figure(Study(study.settings, Table.from_rows([], TRIALS), study.rounds)).axes[0]
    assert ax.get_xlabel() == "Round"
    assert len(ax.lines) == 1


def test_nothing_to_show_is_said() -> None:
    study = a_study(("fts",))
    with pytest.raises(ConfigError, match="expected a study with successful trials"):
        figure(Study(study.settings, Table.from_rows([], TRIALS), Table.from_rows([], ROUNDS)))


def test_the_picture_has_the_size_of_the_figure(tmp_path: Path) -> None:
    study, path = a_study(), tmp_path / "new" / "study.png"
    plot_study(study, path, title="a $title_ that is not maths$ {")
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    inches = figure(study).get_size_inches()
    assert (width, height) == tuple(round(200 * inch) for inch in inches)
    assert [p.name for p in path.parent.iterdir()] == ["study.png"]


def test_names_may_be_anything(tmp_path: Path) -> None:
    plot_study(a_study(("$x_{", "fts")), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize("name", ["picture", "picture.bmp"])
def test_other_formats_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"expected a name that ends in \.pdf, \.png, \.svg"):
        plot_study(a_study(), tmp_path / name)


def test_a_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without_matplotlib(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(ConfigError, match=r"pip install 'fbo-flower\[simulation\]'"):
        figure(a_study())


def test_labels_keep_order_and_distance_between_the_edges() -> None:
    heights = _spread(np.array([0.99, 1.0, 0.98, 0.2]), 0.1)
    np.testing.assert_allclose(heights, [0.9, 1.0, 0.8, 0.2])
    np.testing.assert_allclose(_spread(np.array([0.5, 0.5]), 0.1), [0.45, 0.55])
