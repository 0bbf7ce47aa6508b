"""Every public name without any extra, and errors that name the extra that is missing.

`.ci/extras.py` does the same, and more, in new environments, which takes minutes.
"""

import tomllib

import extras
from processes import ROOT, python

HIDDEN = f"""\
import sys
class Hidden:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {extras.OPTIONAL!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden)
"""


def test_every_extra_is_tried_alone():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {"core", *declared} - {"dev"} == set(extras.EXTRAS)  # the jobs of the test suite use `dev`
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    assert f"extra: [{', '.join(extras.EXTRAS)}]" in workflow


def test_without_extras_every_name_works_and_errors_say_what_to_install(tmp_path):
    (tmp_path / "uses.py").write_text(HIDDEN + extras.program("core"), "utf-8")
    python("uses.py", cwd=tmp_path)
