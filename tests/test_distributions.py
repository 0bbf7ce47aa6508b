"""What is in the distributions, and what works of them without any extra.

`make dist` checks metadata too; `.ci/extras.py` tries every extra in a new environment, which takes minutes.
"""

import tarfile
import tomllib
import zipfile

import extras
import pytest
from processes import ROOT, python

KINDS = {".bib", ".html", ".json", ".md", ".png", ".py", ".toml", ".txt", ".typed"}


def files(*folders):
    """Return the files of folders that are read, by their path in the repository."""
    found = (file for folder in folders for file in (ROOT / folder).rglob("*"))
    return {str(file.relative_to(ROOT)) for file in found if file.suffix in KINDS}


@pytest.mark.slow
def test_the_sdist_has_everything_that_the_tests_read_and_the_wheel_the_package_and_nothing_else(tmp_path):
    python("-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", tmp_path)  # no index is needed
    (sdist,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names > files("fbo_flower", "tests", "docs", "examples", "studies", ".ci") | {"Makefile"}
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"fbo_flower"}
    assert names > files("fbo_flower")


# importing them is a ModuleNotFoundError
HIDDEN = f"import sys\nsys.modules.update(dict.fromkeys({extras.OPTIONAL!r}))\n"


def test_every_extra_is_tried_alone():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {"core", *declared} - {"dev"} == set(extras.EXTRAS)  # the jobs of the test suite use `dev`
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    assert f"extra: [{', '.join(extras.EXTRAS)}]" in workflow


def test_without_extras_every_name_works_and_errors_say_what_to_install(tmp_path):
    (tmp_path / "uses.py").write_text(HIDDEN + extras.program("core"), "utf-8")
    python("uses.py", cwd=tmp_path)
