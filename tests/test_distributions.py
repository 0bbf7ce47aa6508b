"""What is in the source distribution and in the wheel. `make dist` builds both and checks their metadata."""

import tarfile
import zipfile

import pytest
from processes import ROOT, python


def build(kind, out):
    """Build a distribution with the backend that is installed: no index is needed."""
    python("-m", "hatchling", "build", "-t", kind, "-d", out)
    (file,) = out.iterdir()
    return file


@pytest.mark.slow
def test_the_sdist_has_everything_that_the_tests_read(tmp_path):
    with tarfile.open(build("sdist", tmp_path / "dist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kinds = {".bib", ".html", ".json", ".md", ".png", ".py", ".toml", ".txt"}
    for folder in ("fbo_flower", "tests", "docs", "examples", "studies"):
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and file.suffix in kinds:
                assert str(file.relative_to(ROOT)) in names
    for name in ("README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "Makefile", "mkdocs.yml"):
        assert name in names
    assert any(name.startswith(".ci/") for name in names)


@pytest.mark.slow
def test_the_wheel_has_the_package_and_nothing_else(tmp_path):
    with zipfile.ZipFile(build("wheel", tmp_path / "dist")) as archive:
        names = set(archive.namelist())
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"fbo_flower"}
    for file in (ROOT / "fbo_flower").rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            assert str(file.relative_to(ROOT)) in names
