"""The page of a study in Chromium, at the width of a phone and of a desk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser, browser
from made_study import a_page_study

from fbo_flower.algorithms import make_algorithm
from fbo_flower.reports.page import MAX_AGENTS, html_page
from fbo_flower.simulation import Keep, simulate
from fbo_flower.study import Study

pytest.importorskip("matplotlib")
pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]
EVIL = '<script>document.title = "run"</script>'


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def models() -> Study:
    made = {method: make_algorithm("rfms", {"method": method}) for method in ("fmo", "lso")}
    options: dict[str, Any] = {"num_rounds": 5, "engine": "inline"}
    runs = [
        simulate("breast-cancer-5sites", algorithm=algorithm, keep=Keep(label=method), **options)
        for method, algorithm in made.items()
    ]
    return Study.merge(runs)


STUDIES = {
    "one agent": lambda: a_page_study(1, 12),
    "agents with names": lambda: a_page_study(8, 12, name=EVIL + " hospital {}", failure=EVIL),
    "many agents": lambda: a_page_study(MAX_AGENTS, 50),
    "algorithms": lambda: a_page_study(20, 12, algorithms=("fts", "ts", "a label that is rather long")),
    "secure sums": lambda: simulate(
        "garland",
        agents=3,
        algorithm=make_algorithm("fed-pne", {"budget": 12, "secure_sums": 2}),
        engine="inline",
    ),
    "models": models,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name, study in STUDIES.items():
        made[name] = tmp_path_factory.mktemp("page") / "report.html"
        made[name].write_text(html_page(study()), encoding="utf-8")
    return made


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_overflows_is_cut_off_or_asked_for(
    window: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    window.errors.clear()
    window.requests.clear()
    window.open(pages[name], width)
    assert window.run("document.documentElement.scrollWidth") <= width
    assert window.run("document.title") != "run"
    assert window.errors == []
    assert window.requests == [pages[name].as_uri()]
    outside = window.run(
        "[...document.querySelectorAll('figure svg')].flatMap((svg) => {"
        "const b = svg.getBoundingClientRect();"
        "return [...svg.querySelectorAll('text')].filter((text) => { const t = text.getBoundingClientRect();"
        "return t.left < b.left - 2 || t.right > b.right + 2 || t.top < b.top - 2 || t.bottom > b.bottom + 2;"
        "}).map((text) => text.textContent)})"
    )
    assert outside == []
    size = window.run("Math.min(...[...document.querySelectorAll('figure text')].map((t) => parseFloat("
        "getComputedStyle(t).fontSize) * t.ownerSVGElement.getScreenCTM().a))")  # fmt: skip
    assert size > 7.5, "pixels of the smallest text"


@pytest.mark.parametrize("width", [390, 1440])
def test_the_pointer_shows_the_value_and_the_configuration_of_a_trial(
    window: Browser, pages: dict[str, Path], width: int
) -> None:
    window.open(pages["agents with names"], width)
    x, y = window.middle("#slices [data-n^='0 '] use")
    assert window.run("document.getElementById('tip').hidden")
    window.move(x, y)
    said = window.run("document.getElementById('tip').innerText")
    assert EVIL in said, "a text, not an element"
    assert "trial" in said
    assert {"lr", "depth", "kind"} <= {line.split(":")[0] for line in said.splitlines()[1:]}
    assert window.run("document.querySelectorAll('#tip script').length") == 0
    box = window.run(
        "(({left, right}) => [left, right])(document.getElementById('tip').getBoundingClientRect())"
    )
    assert box[0] >= 0
    assert box[1] <= width
    window.middle("#results")
    window.move(2, 2)
    assert window.run("document.getElementById('tip').hidden")


def test_the_pointer_names_the_agent_of_a_line(window: Browser, pages: dict[str, Path]) -> None:
    window.open(pages["agents with names"], 1440)
    window.middle("#curves svg")
    x, y = window.run(
        "(() => { const path = document.querySelector('#curves [data-a] path'), matrix = path.getScreenCTM();"
        "const {x, y} = path.getPointAtLength(path.getTotalLength()).matrixTransform(matrix);"
        "return [x, y]})()"
    )
    window.move(x, y)
    assert ": best " in window.run("document.getElementById('tip').innerText")
    assert window.run("document.querySelectorAll('.near').length") == 1


def test_a_click_on_a_head_sorts_and_another_one_turns_the_order(
    window: Browser, pages: dict[str, Path]
) -> None:
    window.open(pages["agents with names"], 1440)
    column = "[...document.querySelectorAll('#best tbody tr')].map((row) => row.cells[{}].textContent)"
    values = [float(value) for value in window.run(column.format(1))]
    assert values == sorted(values, reverse=True)
    window.click("#best th:nth-child(2) button")
    assert [float(value) for value in window.run(column.format(1))] == sorted(values)
    window.click("#best th:nth-child(2) button")
    assert [float(value) for value in window.run(column.format(1))] == values
    window.click("#best th:nth-child(1) button")
    names = window.run(column.format(0))
    assert names == sorted(names)
    assert window.run("document.querySelectorAll('#best [aria-sort]').length") == 1


@pytest.mark.parametrize("name", ["agents with names", "many agents"])
def test_an_agent_that_is_not_chosen_loses_its_lines_dots_and_rows(
    window: Browser, pages: dict[str, Path], name: str
) -> None:
    window.open(pages[name], 1440)
    count = "[...document.querySelectorAll('{}')].filter((e) => e.getBoundingClientRect().height).length"
    everything = {part: count.format(part) for part in ("#best tbody tr", "#slices [data-n] use")}
    before = {part: window.run(script) for part, script in everything.items()}
    window.click(".agents summary")
    window.click(".agents input[type=checkbox]", 1)
    agent = "data.notes.filter((note) => note[0] === 1).length"
    assert window.run(agent) > 0
    assert window.run(everything["#best tbody tr"]) == before["#best tbody tr"] - 1
    assert window.run(everything["#slices [data-n] use"]) < before["#slices [data-n] use"]
    assert window.run("document.querySelector('.agents output').textContent").startswith(
        f"{before['#best tbody tr'] - 1} of "
    )
    lines = "[...document.querySelectorAll('#curves [data-a]')].map((e) => getComputedStyle(e).display)"
    assert window.run(lines).count("none") == 1
    window.click(".agents button[value=none]")
    assert window.run(everything["#best tbody tr"]) == 0
    window.click(".agents button[value=all]")
    assert window.run(everything["#best tbody tr"]) == before["#best tbody tr"]
    assert window.run(lines).count("none") == (before["#best tbody tr"] if name == "many agents" else 0)
