"""What is in the source distribution and in the wheel. `make dist` builds both and checks their metadata."""

import tarfile
import zipfile

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
    assert names > files("fbo_flower", "tests", "docs", "examples", "studies", ".ci") | {
        "LICENSE",
        "Makefile",
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"fbo_flower"}
    assert names > files("fbo_flower")
