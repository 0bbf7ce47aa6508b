"""Every block runs of every page with Python code, README and docs/, and every cell of the tutorials.

A block's language may be followed by a tag. `install`: needs a package index and is only compared with
`pyproject.toml`. `shell`: commands of the system, which are not run. `wrong`: ends in the error that the
next block quotes. `part`: needs names or packages that the page does not have; it is only compiled.
`device`: the agent of `app` asks for ten trials meanwhile.
"""

import importlib
import json
import re
import shlex
import threading
import tomllib
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import site_pages
from blocks import blocks
from flower_runtime import ROOT
from flwr.app import Context, RecordDict

from fbo_flower.cli.flower_cli import FlowerCLI, RunStatus
from fbo_flower.cli.main import run
from fbo_flower.cli.run import parse
from fbo_flower.errors import FBOError
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import ExpectedImprovement

# these have tests of their own: `test_add_an_algorithm.py`, `tests/e2e/test_deploy_document.py`
ELSEWHERE = {"docs/add-an-algorithm.md", "docs/deploy.md"}
PAGES = [
    page
    for page in ("README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")))
    if page not in ELSEWHERE and any(block.language == "python" for block in blocks(page))
]
# the blocks of a page read files that the first Python block of another page writes
FILES_OF = {"docs/simulate.md": "docs/start.md"}
NEEDS = {
    "docs/ask-and-tell.md": ("optuna",),
    "docs/trackers.md": ("optuna", "plotly", "tensorboard", "mlflow", "wandb"),
}
TAGS = {"", "device", "install", "part", "shell", "wrong"}
# a page may show more agents, rounds and evaluations than a test needs
SMALLER = {"--agents": "3", "--rounds": "2", "--trials": "2"}


def commands(text):
    """Yield the words of each command, without its name."""
    for line in text.replace("\\\n", " ").splitlines():
        if not (command := shlex.split(line, comments=True)):
            continue  # a comment
        name, *words = command
        assert name == "fbo-flower", f"expected a command of fbo-flower, got {line!r}; tag the block install"
        yield words


def smaller(words):
    """Return a command with at most the agents and evaluations that a test needs, in this process."""
    if words[0] != "simulate":
        return words
    words = [SMALLER.get(before, word) for before, word in zip(["", *words], words, strict=False)]
    return words if "--resume" in words else [*words, "--engine", "inline"]


@pytest.fixture
def _place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower"))
    (tmp_path / "flower").mkdir()
    (tmp_path / "flower" / "config.toml").write_text(
        '[superlink]\ndefault = "local"\n[superlink.local]\naddress = ":local:"\n'
        '[superlink.deploy]\naddress = "127.0.0.1:8000"\n'
    )


@pytest.fixture
def submitted(monkeypatch):
    """Run what `fbo-flower run` submits in this process; `tests/app` and `tests/e2e` use Flower's runtime."""
    found = []

    def submit(self, app, run_config, federation_config):
        found.append(app)
        package = Path(app).name.replace("-", "_")
        defaults = tomllib.loads((Path(app) / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
        config = {**defaults, **parse(run_config, "--run-config")}
        num_nodes = parse(federation_config, "--federation-config")["num-supernodes"]
        monkeypatch.syspath_prepend(app)
        client = importlib.import_module(f"{package}.client_app")
        server = importlib.import_module(f"{package}.server_app")
        grid = InProcessGrid(client.app, num_nodes, run_config=config)
        server.app(grid, Context(1, 0, {}, RecordDict(), config))
        return "1"

    def status(self, run_id):
        return RunStatus("finished:completed", "")

    monkeypatch.setattr(FlowerCLI, "submit", submit)
    monkeypatch.setattr(FlowerCLI, "stream", lambda self, run_id, everything: None)
    monkeypatch.setattr(FlowerCLI, "status", status)
    monkeypatch.setattr("fbo_flower.clients.asking.POLL_SECONDS", 0.01)
    monkeypatch.setattr("fbo_flower.cli.run.check_simulation", lambda connection: {})
    monkeypatch.setattr("fbo_flower.clients.agent.in_simulation", lambda: True)
    return found


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("_place", "unpictured", "few_trees")
def test_the_blocks_of_a_page_run_in_their_order(page, submitted, capsys, caplog):
    caplog.set_level("INFO", logger="flwr")
    for module in NEEDS.get(page, ()):
        pytest.importorskip(module, reason=f"{page} needs {module}")
    if page in FILES_OF:
        exec(next(b.text for b in blocks(FILES_OF[page]) if b.language == "python"), {})
    names = {"__name__": "__main__"}
    found = blocks(page)
    for number, block in enumerate(found):
        if block.tag == "wrong":
            expected = found[number + 1]
            assert expected.language == "text", "the error stands behind the mistake"
            message = error_of(block, names, capsys)
            assert expected.text.strip() in message, f"{block.text}\n{message}"
        elif block.language == "python":
            with asking(names) if block.tag == "device" else nullcontext():
                text = re.sub(r'("fts", num_rounds=)\d+', r"\g<1>2", block.text)
                code = compile(text, f"{page}, block {number}", "exec")
                if block.tag != "part":
                    exec(code, names)
        elif block.language == "bash" and not block.tag:
            for words in commands(block.text):
                assert run(smaller(words)) == 0, f"{words}\n{capsys.readouterr()}"
    if page == "docs/start.md":
        assert any("Registered 3 agents, search space 544ce29a2684" in line for line in caplog.messages)
        text = (ROOT / page).read_text(encoding="utf-8")
        listed = re.findall(r"`([\w*/.]+)`", "".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)))
        files = [
            f"{file.name}/*.npz" if file.is_dir() else file.name for file in Path("runs/first").iterdir()
        ]
        assert set(files) <= set(listed)
    if page == "README.md":
        check_readme(capsys.readouterr().out)
    assert len(submitted) == sum("fbo-flower run" in block.text for block in found if not block.tag)


def check_readme(printed):
    """Compare what the first study prints with what the page says of it.

    Processors differ in last digits, and then in which points a model proposes. The figures are means over 18
    sites; over seeds they have deviations of .004 and .04.
    """
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    said = [float(number) for number in re.search(r"It prints (\.\d+) and (\.\d+)\.", page).groups()]
    found = [float(number) for number in re.findall(r"^(?:fed-)?ei ([\d.]+)$", printed, re.MULTILINE)]
    assert found == pytest.approx(said, abs=0.05)
    assert found[0] > found[1] + 0.05


@contextmanager
def asking(names):
    """Run a study of `app` whose agent, with the journal north.db, asks for ten trials."""
    grid = InProcessGrid(names["app"], 1, node_configs={0: {"journal": "north.db"}})
    strategy = ExpectedImprovement(num_agents=1)
    thread = threading.Thread(target=strategy.start, args=(grid,), kwargs={"num_rounds": 8}, daemon=True)
    thread.start()
    yield
    thread.join()


def error_of(block, names, capsys):
    """Run a mistake and return its error, which is one line."""
    capsys.readouterr()
    if block.language == "python":
        with pytest.raises(FBOError) as caught:
            exec(compile(block.text, "mistake", "exec"), names)
        return str(caught.value)
    (words,) = commands(block.text)
    assert run(words) != 0
    _, error = capsys.readouterr()
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_compared_and_what_is_installed_exists(page):
    if page == "docs/troubleshooting.md":
        assert sum(block.tag == "wrong" for block in blocks(page)) >= 10, "errors that are tried"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for block in blocks(page):
        assert block.tag in TAGS
        assert block.language in {"python", "bash", "text"}
        assert block.language != "text" or not block.tag
        for names in re.findall(r"\.\[([\w,]+)\]", block.text) if block.tag == "install" else ():
            assert set(names.split(",")) <= set(extras)
        assert "pip install fbo-flower" not in block.text, "it is on no package index yet"


NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
# what the reader has at the end
PRODUCTS = {
    "first-study": ("runs/first/report.png", "runs/first/report.html"),
    "choose-an-algorithm": ("comparison.png",),
    "deploy-to-three-devices": ("three-devices.png",),
    "privacy-for-operators": ("privacy.md",),
    "tune-an-existing-app": ("before-and-after.png",),
    "write-an-algorithm": ("meeting.png",),
}
# `make quick` runs the first, `make e2e` the one that starts programs that listen, `make test` the others
MARKS = {"first-study": (), "deploy-to-three-devices": pytest.mark.deployment}
RUN = [pytest.param(notebook, marks=MARKS.get(notebook.stem, pytest.mark.slow)) for notebook in NOTEBOOKS]


def cells(notebook):
    return json.loads(notebook.read_text(encoding="utf-8"))["cells"]


@pytest.mark.parametrize("notebook", RUN, ids=lambda notebook: notebook.stem)
def test_the_cells_of_a_tutorial_run_in_order_and_leave_what_they_promise(notebook, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra simulation")
    code = ["".join(cell["source"]) for cell in cells(notebook) if cell["cell_type"] == "code"]
    outputs = site_pages.run_cells(code, tmp_path)
    assert len(outputs) == len(code)
    assert any(printed for printed, _ in outputs)
    drawn = {picture for _, pictures in outputs for picture in pictures}
    assert drawn == {Path(product).name for product in PRODUCTS[notebook.stem] if product.endswith(".png")}
    for product in PRODUCTS[notebook.stem]:
        assert (tmp_path / product).stat().st_size > 1000


def test_tutorials_are_small_have_no_outputs_and_link_to_files():
    assert {notebook.stem for notebook in NOTEBOOKS} == set(PRODUCTS), "so that all are run"
    for notebook in NOTEBOOKS:
        assert notebook.stat().st_size < 50_000
        for cell in cells(notebook):
            assert not cell.get("outputs")
            for link in re.findall(r"\]\(([^)\s]+)\)", "".join(cell["source"])):
                assert cell["cell_type"] == "code" or (notebook.parent / link).is_file(), link
