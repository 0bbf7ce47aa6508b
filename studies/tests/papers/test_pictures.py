"""Pictures of experiments: what is drawn, and that it can be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from figure_text import unreadable  # needs matplotlib

from studies.papers import families_report
from studies.papers.co_kg import report as co_kg_draw
from studies.papers.families import ALGORITHMS, BROAD
from studies.papers.fts import private, related, synthetic

Drawn = Callable[..., Any]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Return a function that calls `module.name(...)` and returns the figure that it would save."""

    def call(module: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        kept: list[Any] = []
        monkeypatch.setattr(module, "save_figure", lambda figure, *_: kept.append(figure))
        getattr(module, name)(*args, Path("unused.png"), **kwargs)
        return kept[0]

    return call


def rising(seed: int, *shape: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.maximum.accumulate(np.random.default_rng(seed).random(shape), axis=-1)


def families(num_problems: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for problem in range(num_problems):
        found[f"problem {problem}"] = {
            label: rising(31 * problem + k, 3, 20) for k, label in enumerate(ALGORITHMS)
        }
        found[f"problem {problem}"]["fed-pne"] = found[f"problem {problem}"]["pf-pne"]
    return found


def test_families_are_drawn_as_gains_in_two_columns_and_twins_share_a_line(drawn: Drawn) -> None:
    panels = families(2)
    figure = drawn(families_report, "draw", panels)
    left, right = figure.axes[:2]
    assert [line.get_label() for line in left.lines[1:]] == [
        *("ts", "fts", "fts portfolio", "rgpe", "taf", "co-kg", "co-kg product", "no collaboration", "fed-ei")
    ]
    labels = [line.get_label() for line in right.lines[1:]]
    assert labels == ["random", "pf-pne = fed-pne", "pf-pne racing", "local-pne", "hct"]
    gain = panels["problem 0"]["ts"] - panels["problem 0"]["ei"]
    np.testing.assert_allclose(np.asarray(left.lines[1].get_ydata()), gain.mean(axis=0))
    assert len(left.collections) == 9  # bands
    assert unreadable(figure) == []


@pytest.mark.parametrize("side", [0, 1])
def test_lines_of_families_look_different(side: int, drawn: Drawn) -> None:
    lines = drawn(families_report, "draw", families(1)).axes[side].lines[1:]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines)
    assert len({line.get_color() for line in lines}) == len(lines)


def test_problems_in_more_dimensions_have_a_panel_each(drawn: Drawn) -> None:
    panels = {problem: {label: each[label] for label in BROAD} for problem, each in families(3).items()}
    panels["problem 1"].pop("rgpe")
    figure = drawn(families_report, "draw_broad", panels)
    assert [len(axis.lines) - 1 for axis in figure.axes[:3]] == [
        len(BROAD) - 1,
        len(BROAD) - 2,
        len(BROAD) - 1,
    ]
    lines = figure.axes[0].lines[1:]
    assert len({line.get_color() for line in lines}) == len(lines)
    assert unreadable(figure) == []


def test_curves_that_differ_on_one_problem_stay_apart() -> None:
    panels = families(2)
    panels["problem 1"]["fed-pne"] = panels["problem 1"]["hct"]
    assert families_report.merged(panels)["pf-pne"] == "pf-pne"


def test_networks_are_drawn_paired_with_no_collaboration(drawn: Drawn) -> None:
    noise = rising(0, 4, 6) * 10  # what seeds differ by
    curves = {"no-collaboration": noise, "co-kg": noise - 0.1, "product": noise + 0.2, "random": noise - 0.2}
    panels = {"net": {metric: curves for metric in co_kg_draw.METRICS}}
    figure = drawn(co_kg_draw, "draw", panels, paired=True)
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in figure.axes[0].lines[1:]}
    assert set(lines) == {"co-kg", "product", "random"}
    np.testing.assert_allclose(lines["co-kg"], 0.1)
    np.testing.assert_allclose(lines["product"], -0.2)
    assert figure.axes[0].get_yscale() == "linear"
    assert unreadable(figure, covered=False) == []


def test_one_framework_that_is_far_away_leaves_the_panel_with_a_note(drawn: Drawn) -> None:
    zero = np.zeros((3, 5))
    curves = {"no-collaboration": zero, "co-kg": zero - 0.01, "random": zero + 0.01, "product": zero + 1}
    figure = drawn(
        co_kg_draw, "draw", {"net": {metric: curves for metric in co_kg_draw.METRICS}}, paired=True
    )
    low, high = figure.axes[0].get_ylim()
    assert -0.1 < low < high < 0.1
    assert [text.get_text() for text in figure.axes[0].texts] == ["product reaches 1 and leaves the panel"]


def test_ticks_of_the_privacy_picture_do_not_collide(drawn: Drawn) -> None:
    curves = {name: rising(k, 2, 4, 6) for k, name in enumerate(private.VARIANTS)}
    epsilons = dict.fromkeys(private.VARIANTS, np.inf)
    epsilons |= {"dp-fts z=1": 25.0, "dp-fts z=2": 9.7, "dp-fts z=4": 4.1, "dp-fts z=8": 1.8}
    epsilons |= {"draws z=1": 9.4, "local z=2": 10.1}
    figure = drawn(private, "draw", curves, epsilons)
    assert unreadable(figure) == []
    low, high = figure.axes[0].get_xlim()
    ticks = [tick for tick in figure.axes[0].get_xticks() if low <= tick <= high]
    assert ticks == [2, 5, 10, 20]


def test_legends_say_what_the_letters_mean(drawn: Drawn) -> None:
    curves = {label: rising(k, 2, 2, 8) for k, label in enumerate(synthetic.variants())}
    figure = drawn(synthetic, "draw_regret", {d: curves for d in synthetic.DIFFERENCES})
    assert figure.axes[0].get_title(loc="left") == "others differ by 0.02 and hold 40 observations"
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert texts == ["ts", *(f"fts, {m} features" for m in (30, 50, 100)), "control: random advice"]
    assert unreadable(figure, covered=False) == []
    preferences = drawn(related, "draw_preferences", np.eye(12), np.eye(29))
    assert "probability that the target uses the message" in [ax.get_ylabel() for ax in preferences.axes]
    assert unreadable(preferences, covered=False) == []
