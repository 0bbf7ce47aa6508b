"""Three devices of different speed without a barrier, with TLS: one is killed, and so is the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import Deployment
from test_crashes import ended, finished, restart_node, start_node, submit, traces

from fbo_flower.study import Study

pytestmark = [pytest.mark.e2e, pytest.mark.deployment]
SECONDS = (0, 1, 25)  # of an evaluation on each device


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path / "flower", secure=True) as deployment:
        deployment.start_superlink()
        for number, seconds in enumerate(SECONDS):
            deployment.register(number)
            start_node(deployment, number, seconds)
        yield deployment


def test_fast_devices_go_on_while_others_are_slow_or_dead_and_the_study_is_resumed(
    deployment: Deployment, tmp_path: Path
) -> None:
    settings = {
        "journal": str(tmp_path / "study.db"), "out": str(tmp_path / "out"),
        "algorithm": "fts", "num_rounds": 4, "mode": "async", "num_initial": 1,
    }  # fmt: skip
    submit(deployment, **settings)
    deployment.wait_until(lambda: len(traces(deployment, 1)) >= 3, "the second evaluation of node 1")
    deployment.kill("node-1")
    before = len(ended(deployment, 0))
    deployment.wait_until(lambda: len(ended(deployment, 0)) > before, "node 0 to go on without node 1")
    deployment.kill("superlink")
    deployment.start_superlink()
    restart_node(deployment, 1, SECONDS[1])
    finished(deployment, submit(deployment, **settings))

    study = Study.load(tmp_path / "out")
    assert study.run("fts")["mode"] == "async"
    told = Counter(study.trials["agent"].tolist())
    made = {str(number): len(ended(deployment, number)) for number in range(3)}
    print(f"\ntold {dict(told)}, made {made}")
    for agent, number in told.items():
        assert made[agent] - number in (0, 1), "at most the evaluation at hand is not told at the end"
        mine = study.trials.where(agent=agent)
        assert sorted(mine["trial"].tolist()) == list(range(number)), "none is missing, none told twice"
        values = dict(zip(mine["trial"].tolist(), mine["value"].tolist(), strict=True))
        assert values.items() <= ended(deployment, int(agent)).items()
    assert told["0"] > told["2"]
    assert told["1"] > 1, "it goes on where it was"
    old = study.replies
    assert len(old) == sum(told.values())
    for agent in told:
        spans = study.times.where(agent=agent)
        exchange = [float(b - a) for a, b in zip(spans["ended"][:-1], spans["started"][1:], strict=True)]
        print(f"agent {agent}: {len(spans)} trials, pauses between them {[round(s, 1) for s in exchange]} s")
    ages = {agent: old.where(agent=agent)["windows_old"].tolist() for agent in sorted(told)}
    print(f"rounds {[round(s, 1) for s in study.rounds['seconds'].tolist()]} s, ages in rounds {ages}")
