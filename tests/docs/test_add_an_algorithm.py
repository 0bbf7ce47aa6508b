"""The algorithm of docs/add-an-algorithm.md runs, and passes the tests that the page asks for."""

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

from fbo_flower import Float, SearchSpace, simulate
from fbo_flower.algorithms import RandomSearch, registry

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


def test_it_gains_from_communication():
    """On a problem that all agents share, 16 agents are ahead of one that searches at random."""
    bests = []
    for algorithm in (page.CrossEntropy(width=0.1), RandomSearch()):
        study = simulate(
            lambda config, data: -((config["x"] - 0.3) ** 2) - (config["y"] - 0.7) ** 2,
            SearchSpace({"x": Float(0, 1), "y": Float(0, 1)}),
            agents=16,
            algorithm=algorithm,
            num_rounds=15,
            engine="inline",
        )
        bests.append(np.array([row["value"] for row in study.best.values()]))
    gain = bests[0] - bests[1]
    assert gain.mean() > 2 * gain.std(ddof=1) / 4
