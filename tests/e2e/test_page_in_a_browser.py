"""The page of a study in Chromium, at the width of a phone and of a desk."""

import json
import os
import shutil
import subprocess

import pytest
from made_study import a_page_study

from fbo_flower.reports.page import MAX_AGENTS, html_page
from fbo_flower.simulation import simulate

pytest.importorskip("matplotlib")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe")
pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]
EVIL = '<script>document.title = "run"</script>'


class Browser:
    """One tab. `errors` are what the page's scripts and its security policy complained about."""

    def __init__(self, commands, answers):
        self._commands, self._answers = commands, os.fdopen(answers, "rb")
        self._number, self._session = 0, ""
        self.errors = []
        self.requests = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Call a method of the protocol and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, (method, answer)
        return dict(answer["result"])

    def open(self, path, width, height=900):
        """Open a file in a window of this size and wait until it is loaded."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=path.resolve().as_uri())
        while (event := self._read()).get("method") != "Page.loadEventFired":
            self._note(event)

    def run(self, script):
        """Return the value of a JavaScript expression, or of the promise that it is."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def move(self, x, y):
        """Move the pointer to a place in the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector, number=0):
        """Click on the middle of an element."""
        x, y = self.middle(selector, number)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def middle(self, selector, number=0):
        """Scroll an element into the window and return its middle, once the page knows of the scroll."""
        box = self.run(
            f"(async () => {{const e = document.querySelectorAll({json.dumps(selector)})[{number}];"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "for (const _ of [1, 2]) await new Promise(requestAnimationFrame);"
            "const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]})()"
        )
        return float(box[0]), float(box[1])

    def _read(self):
        text = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            text += byte
        return dict(json.loads(text))

    def _note(self, event):
        method, told = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(told["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.errors.append(str(told["entry"]["text"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(str(told["request"]["url"]))


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    """Return a headless Chromium with an empty profile: the DevTools protocol over pipes."""
    (read, write), (read_own, write_own) = os.pipe(), os.pipe()
    command = f'exec "$0" "$@" 3<&{read} 4>&{write_own}'
    process = subprocess.Popen(
        ["bash", "-c", command, CHROMIUM, *OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"],
        pass_fds=(read, write_own), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(read)
    os.close(write_own)
    try:
        yield Browser(write, read_own)
    finally:
        process.terminate()
        process.wait(20)
        os.close(write)


STUDIES = {
    "agents with names": lambda: a_page_study(8, 12, name=EVIL + " hospital {}", failure=EVIL),
    "many agents": lambda: a_page_study(MAX_AGENTS, 50),
    "algorithms": lambda: a_page_study(20, 12, algorithms=("fts", "ts", "a label that is rather long")),
    "models": lambda: simulate("breast-cancer-5sites", algorithm="rfms", num_rounds=5, engine="inline"),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    made = {}
    for name, study in STUDIES.items():
        made[name] = tmp_path_factory.mktemp("page") / "report.html"
        made[name].write_text(html_page(study()), encoding="utf-8")
    return made


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_overflows_is_cut_off_or_asked_for(window, pages, name, width):
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


def test_the_pointer_shows_the_value_and_the_configuration_of_a_trial(window, pages):
    window.open(pages["agents with names"], 390)
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
    assert box[1] <= 390
    window.middle("#results")
    window.move(2, 2)
    assert window.run("document.getElementById('tip').hidden")


def test_a_click_on_a_head_sorts_and_another_one_turns_the_order(window, pages):
    window.open(pages["agents with names"], 1440)
    column = "[...document.querySelectorAll('#best tbody tr')].map((row) => row.cells[{}].textContent)"
    values = [float(value) for value in window.run(column.format(1))]
    assert values == sorted(values, reverse=True)
    window.click("#best th:nth-child(2) button")
    assert [float(value) for value in window.run(column.format(1))] == sorted(values)
    window.click("#best th:nth-child(1) button")
    names = window.run(column.format(0))
    assert names == sorted(names)
    assert window.run("document.querySelectorAll('#best [aria-sort]').length") == 1


def test_an_agent_that_is_not_chosen_loses_its_lines_dots_and_rows(window, pages):
    window.open(pages["many agents"], 1440)
    count = "[...document.querySelectorAll('{}')].filter((e) => e.getBoundingClientRect().height).length"
    everything = {part: count.format(part) for part in ("#best tbody tr", "#slices [data-n] use")}
    before = {part: window.run(script) for part, script in everything.items()}
    window.click(".agents summary")
    window.click(".agents input[type=checkbox]", 1)
    agent = "data.notes.filter((note) => note[0] === 1).length"
    assert window.run(agent) > 0
    assert window.run(everything["#best tbody tr"]) == before["#best tbody tr"] - 1
    assert window.run(everything["#slices [data-n] use"]) < before["#slices [data-n] use"]
    lines = "[...document.querySelectorAll('#curves [data-a]')].map((e) => getComputedStyle(e).display)"
    assert window.run(lines).count("none") == 1
    window.click(".agents button[value=none]")
    assert window.run(everything["#best tbody tr"]) == 0
    window.click(".agents button[value=all]")
    assert window.run(everything["#best tbody tr"]) == before["#best tbody tr"]
    assert window.run(lines).count("none") == before["#best tbody tr"]
