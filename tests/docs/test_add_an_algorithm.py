"""The algorithm of docs/add-an-algorithm.md runs, and passes the tests that the page asks for."""

import re
import sys
from pathlib import Path
from types import ModuleType

from fbo_flower.algorithms import registry

PAGE = (Path(__file__).parents[2] / "docs/add-an-algorithm.md").read_text(encoding="utf-8")
page = ModuleType("add_an_algorithm")
sys.modules[page.__name__] = page  # classes look for their annotations there
for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
    exec(block, page.__dict__)
registry._LOCAL.pop(page.CrossEntropy.name)  # the study of the page registered it while tests are collected

TestCrossEntropy = page.TestCrossEntropy
TestCrossEntropyWithSecureSums = page.TestCrossEntropyWithSecureSums


def test_the_study_of_the_page_has_its_trials():
    assert len(page.study.trials) == 4 * (3 + 7)
    assert page.strategy.algorithm == page.CrossEntropy()
