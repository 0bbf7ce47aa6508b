"""The workflows in `.github`: valid, and no command in them that the repository does not have."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest
import yaml
from deployment import SCRIPTS
from flower_runtime import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_follows_its_schema(path) -> None:
    words = [SCRIPTS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_exists_and_may_do_little(path) -> None:
    workflow = yaml.safe_load(path.read_text())
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if step.get("run")]
    text = "\n".join(commands)
    assert set(re.findall(r"\bmake ([a-z0-9-]+)", text)) <= TARGETS
    for name in re.findall(r"(?:bash|python) (\.?[\w/]+(?:\.py|/run))", text):
        assert (ROOT / name).is_file(), name
    assert set(workflow["permissions"]) == {"contents"}, "more only in the job that needs it"
    used = [step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert all("@" in name for name in used)
    assert all("timeout-minutes" in job for job in workflow["jobs"].values() if len(job["steps"]) > 2)


def test_the_tests_run_on_every_python_that_the_package_names() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [c.rsplit(" ", 1)[1] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == named
