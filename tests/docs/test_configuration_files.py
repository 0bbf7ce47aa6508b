"""Workflows and containers: valid, pinned, and no word in them that the repository does not have.

What can be known without building an image.
"""

import json
import re
import shlex
import subprocess
import tomllib
from collections import defaultdict
from importlib.metadata import entry_points, version

import pytest
import yaml
from flower_runtime import ROOT, SCRIPTS
from packaging.requirements import Requirement

CONTAINERS = ROOT / "containers"
DOCKERFILES = sorted(CONTAINERS.glob("*.Dockerfile"))
COMPOSE = CONTAINERS / "compose.yaml"
SERVICES = yaml.safe_load(COMPOSE.read_text())["services"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def instructions(dockerfile):
    """Return the instructions of a Dockerfile with their arguments, continued lines joined."""
    lines = (
        re.sub(r"^\s*#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    )
    return [
        (word.upper(), rest.strip())
        for word, _, rest in (line.strip().partition(" ") for line in lines)
        if word
    ]


def said(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_workflows_and_the_compose_file_follow_their_schemas_and_hadolint_has_no_complaint():
    for schema, files in (("github-workflows", WORKFLOWS), ("compose-spec", [COMPOSE])):
        said(SCRIPTS / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files)
    if not (SCRIPTS / "hadolint").exists():
        pytest.skip("hadolint has no package for this system")
    assert json.loads(said(SCRIPTS / "hadolint", "-f", "json", *DOCKERFILES)) == []


# workflows


def test_workflows_run_what_exists_on_every_python_that_the_package_names():
    for path in WORKFLOWS:
        jobs = yaml.safe_load(path.read_text())["jobs"]
        text = "\n".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
        assert set(re.findall(r"\bmake ([a-z0-9-]+)", text)) <= TARGETS
        for name in re.findall(r"(?:bash|python) (\.?[\w/]+(?:\.py|/run))", text):
            assert (ROOT / name).is_file(), name
        if path.stem == "tests":
            named = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
            assert jobs["tests"]["strategy"]["matrix"]["python"] == named


# containers


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_an_image_is_pinned_runs_without_root_and_copies_what_reaches_the_build(path):
    found = defaultdict(list)
    for word, argument in instructions(path):
        found[word].append(argument)
    assert all(re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+-[\w.-]+", base) for base in found["FROM"])
    assert re.match(r"[1-9]\d*\b", found["USER"][-1]), "not root"
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for argument in found["COPY"]:
        *sources, _ = [part for part in shlex.split(argument) if not part.startswith("--")]
        assert all((ROOT / source).exists() for source in sources)
        assert {source.split("/")[0] for source in sources} <= let_in


def test_pinned_versions_are_those_that_the_package_allows_and_its_own():
    lines = (CONTAINERS / "constraints.txt").read_text().splitlines()
    pinned = dict(line.lower().replace("_", "-").split("==") for line in lines if "==" in line)
    for requirement in map(Requirement, PROJECT["dependencies"]):
        assert requirement.specifier.contains(pinned[requirement.name.lower()]), str(requirement)
    text = "".join(path.read_text() for path in CONTAINERS.rglob("*") if path.is_file())
    assert set(re.findall(r"fbo-super(?:link|node):([\d.]+\d)", text)) == {version("fbo-flower")}


def test_a_wrong_option_in_a_command_would_be_noticed(capsys, monkeypatch):
    words = {path.stem: dict(instructions(path)) for path in DOCKERFILES}
    commands = [json.loads(own["ENTRYPOINT"]) + json.loads(own["CMD"]) for own in words.values()]
    nodes = [s["command"] for s in SERVICES.values() if "supernode" in s["build"]["dockerfile"]]
    commands += [json.loads(words["supernode"]["ENTRYPOINT"]) + command for command in nodes]
    assert len(nodes) == 3
    for program, *given in commands:
        options = {word.split("=")[0] for word in given if word.startswith("--")}
        (installed,) = entry_points(group="console_scripts", name=program)
        monkeypatch.setattr("sys.argv", [program, "--help"])
        with pytest.raises(SystemExit):
            installed.load()()
        text = capsys.readouterr().out
        assert text
        assert [option for option in options if not re.search(rf"{option}\b", text)] == [], program


def test_the_readmes_first_screen_names_the_main_job_and_the_tests_that_ci_runs():
    first = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Install")[0]
    assert {*re.findall(r"`make ([a-z]+)`", first)} == {"demo", "test"} <= TARGETS
    assert re.search(r"^make .*\btest\b", (ROOT / ".ci/run").read_text(encoding="utf-8"), flags=re.MULTILINE)
