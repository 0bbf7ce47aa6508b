"""What notebooks show: tables and figures, and progress in one line at a terminal."""

import io
import json
import sys
from importlib.util import find_spec

import pytest

from fbo_flower import Categorical, Float, SearchSpace, simulate

SPACE = SearchSpace({"x": Float(0, 1), "kind": Categorical(["<b>", "a"])})


def score(config, site):
    return config["x"] - site / 10


@pytest.fixture(scope="module")
def study():
    return simulate(score, SPACE, {"north": 0, "south": 1, "east": 2}, "random", 20, engine="inline")


def test_studies_and_tables_are_shown_as_html(study):
    page = study._repr_html_()
    assert page.count("<tr>") == 4
    assert "<td>north</td>" in page
    assert "<th>config.x</th>" in page
    trials = study.trials._repr_html_()
    assert trials.count("<tr>") == 21
    assert f"the first 20 of {len(study.trials)} rows" in trials
    assert "<th>failure</th>" not in trials
    assert "&lt;b&gt;" in trials
    assert "<b>" not in trials
    assert "<td>1</td>" in study.rounds._repr_html_()


def test_a_figure_is_shown_as_a_picture_and_with_plotly_says_what_trials_were(study):
    drawing = study.plot()
    shown = drawing._repr_mimebundle_(include=None, exclude=None)
    assert shown["image/png"].startswith(b"\x89PNG")
    if find_spec("plotly"):
        from fbo_flower.reports.figures import hover_figure

        page = json.dumps(hover_figure(study).to_plotly_json(), default=list)
        assert "north, trial 3" in page


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "verbose", "lines", "overwritten"),
    [(Terminal, None, 1, 8), (io.StringIO, None, 0, 0), (io.StringIO, True, 8, 0)],
)
def test_progress_is_one_line_at_a_terminal_and_off_in_scripts(
    monkeypatch, stream, verbose, lines, overwritten
):
    written = stream()
    monkeypatch.setattr(sys, "stderr", written)
    simulate(score, SPACE, 2, "random", 2, engine="inline", verbose=verbose, minimize=True)
    shown = written.getvalue()
    assert (shown.count("\n"), shown.count("\r")) == (lines, overwritten)
    if lines:
        assert "round 2/2, 8 trials, best " in shown
