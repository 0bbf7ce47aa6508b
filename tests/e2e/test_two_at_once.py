"""A SuperNode that makes two evaluations at once: one of its workers is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from deployment import Deployment, nodes
from test_crashes import ended, finished, submit, traces

from fbo_flower.study import Study

pytestmark = [pytest.mark.e2e, pytest.mark.deployment]
SECONDS = 8  # of an evaluation, long enough for a second one to begin and for a kill


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path / "flower", secure=True) as deployment:
        deployment.start_superlink()
        deployment.register(0)
        own = {
            "journal": str(deployment.home / "agent-0.db"),
            "traces": str(deployment.home / "traces-0"),
            "seconds": SECONDS,
            "num_parallel": 2,
        }
        deployment.start_supernode(0, nodes(3)[0] | own)
        yield deployment


def test_a_worker_that_is_killed_costs_its_own_trial(deployment: Deployment, tmp_path: Path) -> None:
    run_id = submit(
        deployment, num_agents=1, num_rounds=2, num_initial=4, out=str(tmp_path / "out"), algorithm="fts"
    )
    deployment.wait_until(lambda: len(traces(deployment, 0)) >= 2, "two evaluations at once")
    (first, trial, worker), (second, other, neighbour) = traces(deployment, 0)[:2]
    assert (first, second, {trial, other}) == ("begin", "begin", {"0", "1"})
    assert worker != neighbour, "each is in a process of its own"
    os.kill(int(worker), signal.SIGKILL)
    finished(deployment, run_id)

    study = Study.load(tmp_path / "out")
    trials = study.trials
    assert trials["trial"].tolist() == [0, 1, 2, 3, 4]
    lost = trials["trial"] == int(trial)
    assert np.isnan(trials["value"][lost]).all()
    assert "SIGKILL" in trials["failure"][lost][0]
    values = dict(zip(trials["trial"][~lost].tolist(), trials["value"][~lost].tolist(), strict=True))
    assert values == ended(deployment, 0)
    assert all(words[1] != trial for words in traces(deployment, 0) if words[0] == "end")
    spans = study.times
    pair = spans["trial"] >= 2  # the second batch of the initial design, with a new worker
    started, stopped = spans["started"][pair][:2], spans["ended"][pair][:2]
    assert started.max() < stopped.min(), "they ran at the same time"
