"""The page of a study: what it shows, that it needs no network, and that texts of agents stay texts."""

import base64
import hashlib
import html
import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from made_study import a_page_study as a_study
from made_study import changed, made_study

from fbo_flower.cli.main import run
from fbo_flower.reports.page import MAX_AGENTS, html_page
from fbo_flower.simulation import simulate
from fbo_flower.space import Categorical, Float, SearchSpace

pytestmark = pytest.mark.usefixtures("few_trees")
EVIL = '<script>console.error("x")</script>'
VOID = {"meta", "br", "input"}


class Checker(HTMLParser):
    """Collects tags, and fails if they are not closed in order."""

    def __init__(self, page):
        super().__init__()
        self.open = []
        self.tags = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def count(self, tag, kind=""):
        kinds = [(own.get("class") or "").split() for name, own in self.tags if name == tag]
        return sum(not kind or kind in own for own in kinds)


def test_the_page_is_whole_and_asks_for_nothing():
    page = html_page(a_study(5, 12, algorithms=("fts", "ts")))
    checked = Checker(page)
    assert "http" not in page.replace("http-equiv", "")
    assert not re.search(r"url\((?!#)|@import|\bsrc=|<link|<img|<iframe", page)
    (policy,) = [own["content"] for _, own in checked.tags if own.get("http-equiv")]
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert checked.count("script") == 2
    assert "data:" not in re.sub("[a-z_]+: ", "", page), "bitmaps, which the policy forbids"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" == policy
    for name in ("results", "curves", "best", "importance", "slices", "contours", "traffic", "privacy"):
        assert f'id="{name}"' in page
        assert f'href="#{name}"' in page
    pictures = [own for tag, own in checked.tags if tag == "svg"]
    assert len(pictures) == 3 + 3 + 3 + 2  # curves of all and of each, parameters, pairs, traffic
    assert all(own["role"] == "img" and own["aria-label"] for own in pictures)


def data_of(page):
    """Return what the script shows under the pointer."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return dict(json.loads(found))


def test_each_agent_has_a_line_and_of_many_a_hidden_one_beside_the_bands():
    few, many = (html_page(a_study(number, 2)) for number in (100, 101))
    for page, kind, number in ((few, "agent", 100), (many, "many", 101)):
        checked = Checker(page)
        assert checked.count("g", kind) == number
        shown = [int(own["data-a"] or "") for tag, own in checked.tags if tag == "g" and own.get("data-a")]
        assert sorted(shown) == list(range(number))
        assert [name for name, _, _ in data_of(page)["agents"]] == [str(agent) for agent in range(number)]
    assert ["quantiles 10 to 90 %" in page for page in (few, many)] == [False, True]
    assert ["a line of an agent is drawn" in page.lower() for page in (few, many)] == [False, True]


def test_every_dot_has_the_value_and_the_configuration_of_its_trial():
    study = a_study(3, 12, name="site {}")
    page = html_page(study)
    notes, slices = data_of(page)["notes"], page.partition('id="slices"')[2].partition("<section")[0]
    groups = re.findall(r'<g data-n="([\d ]+)"[^>]*>(.*?)</g></g>', slices)
    assert len(groups) == 3 * 3 * 2  # parameters, agents, trials and best
    for numbers, inside in groups:
        assert inside.count("<use ") == len(numbers.split())
    expected = {f"{row['agent']}, trial {row['trial']}: {row['value']:.6g}": row for row in study.trials}
    for agent, head, config in notes:
        owner, _, value = head.partition(", ")
        assert owner == f"site {agent}"
        row = expected.get(head)
        if row is None:
            assert value == f"best: {study.best[owner]['value']:.6g}"
            row = study.best[owner]
        shown = dict(line.split(": ") for line in config.splitlines())
        assert shown["kind"] == row["config"]["kind"]
        assert shown["depth"] == str(row["config"]["depth"])
        assert float(shown["lr"]) == pytest.approx(row["config"]["lr"], rel=1e-3)
    assert len(notes) == len(expected) + 3


def test_a_large_page_stays_below_a_megabyte_and_says_what_it_leaves_out():
    page = html_page(a_study(MAX_AGENTS + 10, 12))
    assert len(page.encode()) < 1_000_000
    assert f"The best {MAX_AGENTS} of {MAX_AGENTS + 10} agents" in page
    assert re.search(r"At most \d,\d\d\d evaluations of an algorithm are drawn, evenly chosen", page)
    assert "Lines have 333 of 400 points" in html_page(a_study(30, 400, SearchSpace({"x": Float(0, 1)})))


def test_the_page_of_selected_models_has_fronts_with_the_losses_of_every_dot():
    row = {
        "algorithm": "rfms",
        "trial": 1,
        "round": 1,
        "config": {"x": 0.5},
        "on_front": True,
        "shipped": True,
    }
    losses = {"local_loss": 0.11, "remote_loss": 0.21, "lockbox": 0.31}
    runs = [{"algorithm": "rfms", "num_agents": 4, "options": {"method": "fmo"}}]
    page = html_page(made_study(runs, models=[row | losses]))
    assert Checker(page).count("svg") > 0
    note = [-1, "model 1: local loss 0.11, remote loss 0.21, lockbox 0.31", "x: 0.5"]
    assert data_of(page)["notes"] == [note]


def test_texts_of_agents_and_users_are_escaped_everywhere():
    space = SearchSpace({EVIL: Float(0, 1), "b": Categorical([EVIL, "y"], active_when=None)})
    study = a_study(
        3, 12, space, algorithms=(f"fts {EVIL}", "ts"), name=EVIL + "{}", failure=f"Error: {EVIL}\x1b[31m"
    )
    page = html_page(study)
    assert "<script>console" not in page
    assert page.count("<script") == page.count("</script") == 2
    assert "\x1b" not in page
    assert html.escape(EVIL) in page
    assert any(EVIL in head for _, head, _ in data_of(page)["notes"])
    for number in (1, 9):
        Checker(html_page(a_study(number, 2, space, name=f"%20 \x1b[31m\n\t\ud800\u202e&'{EVIL}{{}}")))
    assert "agents with most failures" in page


def test_a_study_that_discloses_little_or_nothing_has_a_page_that_says_so():
    study = a_study(3, 4)
    hidden = changed(study, trials=[])
    rounds = [{**row, "mean_incumbent": math.nan, "best": math.nan} for row in study.rounds]
    for shown, *sentences in (
        (hidden, "No agent disclosed a configuration", "they did not disclose their trials"),
        (changed(hidden, rounds=rounds), "they keep them on their devices"),
        (a_study(1, 0, minimize=True),),
        (a_study(1, 1, minimize=True),),
    ):
        page = html_page(shown)
        Checker(page)
        assert all(sentence in page for sentence in sentences)


def test_the_command_writes_the_page(tmp_path, capsys):
    a_study(1, 2).save(tmp_path / "s")
    assert run(["report", str(tmp_path / "s"), "--html"]) == 0
    page = tmp_path / "s" / "report.html"
    assert f"Page: {page}" in capsys.readouterr().out
    Checker(page.read_text(encoding="utf-8"))
    assert not (tmp_path / "s" / "report.png").exists()
    assert run(["report", str(tmp_path / "s"), "--html", "--out", str(tmp_path / "a.png")]) == 2
    assert "ends in .html" in capsys.readouterr().err


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0", "--dump-dom")
STUDIES = {
    "agents with names": lambda: a_study(8, 12, name=EVIL + " hospital {}", failure=EVIL),
    "many agents": lambda: a_study(MAX_AGENTS, 50),
    "models": lambda: simulate("breast-cancer-5sites", algorithm="rfms", num_rounds=5, engine="inline"),
}


@pytest.mark.deployment
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
@pytest.mark.parametrize("name", STUDIES)
def test_a_page_runs_its_script_and_nothing_else_without_a_complaint(name, tmp_path):
    page = tmp_path / "report.html"
    page.write_text(html_page(STUDIES[name]()), encoding="utf-8")
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert "CONSOLE" not in done.stderr, "errors of the script, and what the policy has blocked"
    assert 'id="tip"' in done.stdout
