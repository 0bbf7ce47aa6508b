"""The page of a study: what it shows, that it needs no network, and that texts of agents stay texts."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from made_study import changed, made_study

from fbo_flower.algorithms import make_algorithm
from fbo_flower.cli.main import run
from fbo_flower.reports.page import html_page
from fbo_flower.simulation import simulate
from fbo_flower.space import Categorical, Float, Int, SearchSpace
from fbo_flower.study import Study

EVIL = '<script>alert("x")</script>'
VOID = {"meta", "br"}
SPACE = SearchSpace(
    {"lr": Float(1e-4, 1.0, log=True), "depth": Int(1, 9), "kind": Categorical(["a", "b", "c"])}
)


def a_study(
    num_agents: int,
    num_trials: int,
    space: SearchSpace = SPACE,
    *,
    algorithms: tuple[str, ...] = ("fts",),
    name: str = "{}",
    failure: str = "",
    minimize: bool = False,
) -> Study:
    """Return a study whose values depend on its first parameter."""
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


class Checker(HTMLParser):
    """Collects tags, and fails if they are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def count(self, tag: str, kind: str = "") -> int:
        return sum(
            name == tag and (not kind or kind in (own.get("class") or "").split()) for name, own in self.tags
        )


def test_the_page_is_whole_and_asks_for_nothing() -> None:
    page = html_page(a_study(5, 12, algorithms=("fts", "ts")))
    checked = Checker(page)
    assert "http" not in page.replace("http-equiv", "")
    assert not re.search(r"url\((?!#)|@import|\bsrc=|<link|<img|<iframe", page)
    (policy,) = [own["content"] for _, own in checked.tags if own.get("http-equiv")]
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" == policy
    for name in ("results", "curves", "best", "importance", "slices", "contours", "traffic", "privacy"):
        assert f'id="{name}"' in page
        assert f'href="#{name}"' in page
    pictures = [own for tag, own in checked.tags if tag == "svg"]
    assert len(pictures) == 3 + 3 + 3  # curves of all and of each, three parameters, three pairs
    assert all(own["role"] == "img" and own["aria-label"] for own in pictures)
    assert checked.count("figcaption") == len(pictures)


def test_each_agent_has_a_line_and_many_agents_have_bands() -> None:
    few, many = (html_page(a_study(number, 4)) for number in (100, 101))
    assert len(few.encode()) < 1_000_000
    assert [Checker(page).count("g", "agent") for page in (few, many)] == [100, 0]
    assert few.count("<title>") == 101
    assert "<title>99</title>" in few
    assert ["quantiles 10 to 90 %" in page for page in (few, many)] == [False, True]


def test_texts_of_agents_and_users_are_escaped_everywhere() -> None:
    space = SearchSpace({EVIL: Float(0, 1), "b": Categorical([EVIL, "y"], active_when=None)})
    study = a_study(
        3, 12, space, algorithms=(f"fts {EVIL}", "ts"), name=EVIL + "{}", failure=f"Error: {EVIL}\x1b[31m"
    )
    page = html_page(study)
    assert "<script>alert" not in page
    assert page.count("<script>") == 1
    assert "\x1b" not in page
    assert html.escape(EVIL) in page
    assert Checker(page).count("script") == 1
    assert "Agents with most failed evaluations" in page


def test_a_best_configuration_can_be_copied_as_it_is() -> None:
    study = a_study(4, 10)
    codes = re.findall(r'class="copy"><code>(.*?)</code>', html_page(study))
    best = sorted(study.best.values(), key=lambda found: -found["value"])
    assert [json.loads(html.unescape(code)) for code in codes] == [found["config"] for found in best]
    losses = a_study(4, 3, minimize=True)
    codes = re.findall(r'class="copy"><code>(.*?)</code>', html_page(losses))
    first = min(losses.best.values(), key=lambda found: found["value"])
    assert json.loads(html.unescape(codes[0])) == first["config"]


def test_a_study_that_discloses_little_or_nothing_has_a_page_that_says_so() -> None:
    study = a_study(3, 4)
    hidden = changed(study, trials=[])
    page = html_page(hidden)
    Checker(page)
    assert "No agent disclosed a configuration" in page
    assert "they did not disclose their trials" in page
    rounds = [{**row, "mean_incumbent": math.nan, "best": math.nan} for row in study.rounds]
    page = html_page(changed(hidden, rounds=rounds))
    Checker(page)
    assert "they keep them on their devices" in page
    for number in (0, 1):
        Checker(html_page(a_study(1, number, minimize=True)))


def test_the_page_of_a_run_with_privacy_says_what_it_cost() -> None:
    options = {"num_features": 10, "num_candidates": 16, "noise_multiplier": 2.0, "sampling_rate": 1.0}
    study = simulate(
        "gp-samples", agents=3, algorithm=make_algorithm("dp-fts", options), num_rounds=4, engine="inline"
    )
    page = html_page(study)
    Checker(page)
    assert "epsilon" in page
    assert "drawn from the study's seed and protects nobody" in page


def test_the_command_writes_the_page_and_a_new_study_removes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_study(3, 5).save(tmp_path / "s")
    assert run(["report", str(tmp_path / "s"), "--html"]) == 0
    page = tmp_path / "s" / "report.html"
    assert f"Page: {page}" in capsys.readouterr().out
    Checker(page.read_text(encoding="utf-8"))
    assert not (tmp_path / "s" / "report.png").exists()
    assert run(["report", str(tmp_path / "s"), "--html", "--out", str(tmp_path / "a.png")]) == 2
    assert "ends in .html" in capsys.readouterr().err
    assert run(["report", str(tmp_path / "s"), "--html", "--out", str(tmp_path / "a.html")]) == 0
    assert (tmp_path / "a.html").is_file()
