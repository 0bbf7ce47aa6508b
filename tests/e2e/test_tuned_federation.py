"""`examples/tune-federation` over SuperLink and SuperNodes tunes as it does in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from deployment import Deployment, nodes
from flower_runtime import ROOT

from fbo_flower.federated import TunedFederation

pytestmark = [pytest.mark.e2e, pytest.mark.deployment]


def test_the_app_tunes_over_supernodes(tmp_path: Path) -> None:
    with Deployment(tmp_path / "federation") as deployment:
        deployment.start_superlink()
        for number, config in enumerate(nodes(4)):
            deployment.start_supernode(number, config)
        out = tmp_path / "out"
        run = deployment.run(
            ROOT / "examples" / "tune-federation", f'num-clients=4 rounds=2 budget=8 out="{out}"'
        )
        assert run.status == "finished:completed", run.log + deployment.log("superlink")
        result = TunedFederation.load(out)
        assert 8 <= result.client_rounds < 12
        assert result.trials["rounds"].sum() == 2 * 2  # two trials side by side, two clients each
        assert (result.curves["trained"] == 2).all()
