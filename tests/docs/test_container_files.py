"""The files of `containers/`: what can be known without building an image; `tests/e2e` follows every line."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from importlib.metadata import version

import pytest
import yaml
from deployment import SCRIPTS
from flower_runtime import ROOT
from packaging.requirements import Requirement

from containers import instructions, words_of

CONTAINERS = ROOT / "containers"
DOCKERFILES = sorted(CONTAINERS.glob("*.Dockerfile"))
COMPOSE = yaml.safe_load((CONTAINERS / "compose.yaml").read_text())
PINNED = dict(
    line.split("==") for line in (CONTAINERS / "constraints.txt").read_text().splitlines() if "==" in line
)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_an_image_is_pinned_and_runs_without_root(path) -> None:
    found = list(instructions(path))
    bases = [argument for word, argument in found if word == "FROM"]
    assert bases
    assert all(re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+-[\w.-]+", base) for base in bases)
    *_, user = (argument for word, argument in found if word == "USER")
    assert user.split(":")[0].isdigit()
    assert user.split(":")[0] != "0"
    environment = dict(
        part.split("=", 1) for word, text in found if word == "ENV" for part in shlex.split(text)
    )
    assert any(word == "RUN" and f"chown -R {user} {environment['HOME']}" in text for word, text in found)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_every_file_that_an_image_copies_reaches_the_build(path) -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for word, argument in instructions(path):
        if word == "COPY":
            *sources, _ = [part for part in shlex.split(argument) if not part.startswith("--")]
            for source in sources:
                assert (ROOT / source).exists()
                assert source.split("/")[0] in let_in


def test_pinned_versions_are_allowed_by_the_package_and_complete() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [Requirement(text) for text in project["dependencies"]]
    canonical = {name.lower().replace("_", "-"): pinned for name, pinned in PINNED.items()}
    for requirement in required:
        assert requirement.specifier.contains(canonical[requirement.name.lower()]), str(requirement)


def test_a_wrong_option_in_a_command_would_be_noticed() -> None:
    asked, entrypoints = [], {}
    for path in DOCKERFILES:
        words = dict(instructions(path))
        entrypoints[path.stem] = words_of(words["ENTRYPOINT"])
        asked.append(words_of(words["ENTRYPOINT"]) + words_of(words["CMD"]))
    services = {
        name: entrypoints["supernode"] + service["command"]
        for name, service in COMPOSE["services"].items()
        if "supernode" in service["build"]["dockerfile"]
    }
    assert len(services) == 3
    for program, *words in [*asked, *services.values()]:
        text = subprocess.run(
            [SCRIPTS / program, "--help"], capture_output=True, text=True, check=True
        ).stdout
        for option in (word.split("=")[0] for word in words if word.startswith("--")):
            assert re.search(rf"{option}\b", text), f"{program} {option}"


def test_nodes_share_nothing_but_the_server() -> None:
    services = COMPOSE["services"]
    names = ["north", "south", "east"]
    volumes = [set(services[name]["volumes"]) for name in names]
    assert all(not (a & b) for i, a in enumerate(volumes) for b in volumes[:i])
    for name in names:
        (config,) = [w for w in services[name]["command"] if w.startswith("--node-config=")]
        assert f'agent="{name}"' in config
        assert 'journal="/app/node/' in config


def test_images_have_the_version_of_the_package() -> None:
    text = "".join(path.read_text() for path in CONTAINERS.rglob("*") if path.is_file())
    tags = set(re.findall(r"fbo-super(?:link|node):([\d.]+\d)", text))
    assert tags == {version("fbo-flower")}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_hadolint_has_no_complaint(path) -> None:
    if not (SCRIPTS / "hadolint").exists():
        pytest.skip("hadolint has no package for this system")
    done = subprocess.run(
        [SCRIPTS / "hadolint", "-f", "json", str(path)], capture_output=True, text=True, check=False
    )
    assert json.loads(done.stdout) == []


def test_the_compose_file_follows_its_schema() -> None:
    words = [
        SCRIPTS / "check-jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(CONTAINERS / "compose.yaml"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
