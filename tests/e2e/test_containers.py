"""The images and the federation of `containers/`, line by line, without Docker."""

from pathlib import Path

import pytest
import yaml
from flower_runtime import ROOT
from waiting import wait_until

from containers import can_run, machine
from fbo_flower.cli.new import new_app

pytestmark = [
    pytest.mark.e2e, pytest.mark.deployment, pytest.mark.skipif(bool(can_run()), reason=can_run() or "runs"),
]  # fmt: skip

SERVICES = yaml.safe_load((ROOT / "containers" / "compose.yaml").read_text())["services"]


def test_the_services_of_the_compose_file_tune_an_app(tmp_path):
    with machine() as computer:
        images = {
            name: computer.build(ROOT / "containers" / f"{name}.Dockerfile", ROOT)
            for name in ("superlink", "supernode")
        }
        volumes = {}
        for name in ("server", "state", "north", "south", "east", "./apps"):
            volumes[name] = computer.home / "volumes" / name
            volumes[name].mkdir(parents=True)

        def image_of(name):
            return images[Path(SERVICES[name]["build"]["dockerfile"]).stem]

        def finish(name, *command):
            service = SERVICES[name] | ({"command": command} if command else {})
            log = tmp_path / f"{name}.log"
            process = computer.start(image_of(name), f"{name}-{len(computer.started)}", service, volumes, log)
            code = process.wait(600)
            for path in tmp_path.glob("*.log") if code else ():
                print(f"== {path.name}\n{path.read_text()[-3000:]}")
            assert code == 0, log.read_text()
            return log.read_text()

        assert "made certificates and keys for the server and 3 nodes" in finish("keys")
        assert "there already" in finish("keys")
        assert (volumes["north"] / "key").stat().st_mode & 0o777 == 0o600
        assert (volumes["north"] / "key").stat().st_uid == 49999
        superlink = computer.start(
            image_of("superlink"), "superlink-1", SERVICES["superlink"], volumes, tmp_path / "superlink.log"
        )
        wait_until(lambda: _is_healthy(computer, image_of("superlink"), tmp_path), "the SuperLink's port")
        finish("register")
        finish("register")  # again, as after a restart
        for name in ("north", "south", "east"):
            computer.start(image_of(name), name, SERVICES[name], volumes, tmp_path / f"{name}.log")
        new_app(volumes["./apps"] / "clinic-tuning")
        finish("submit", "doctor", "deploy", "--app", "/app/apps/clinic-tuning", "--nodes", "3")
        settings = "num-agents=3 num-rounds=2 out='/app/state/study' journal='/app/state/study.db'"
        finish("submit", "run", "/app/apps/clinic-tuning", "deploy", "-c", settings)
        assert "What the server learned: /app/state/study" in finish("submit", "report", "/app/state/study")
        best = tmp_path / "best.log"
        root = computer.home / "north" / "root"
        asked = ["fbo-flower", "best", "/app/node/journal.db"]
        assert computer.execute(image_of("north"), root, asked, best).wait(120) == 0, best.read_text()
        assert superlink.poll() is None
        for line in Path(f"/proc/{superlink.pid}/status").read_text().splitlines():
            if line.startswith(("Uid:", "Gid:")):
                assert set(line.split()[1:]) == {"49999"}


def _is_healthy(computer, image, directory):
    words = SERVICES["superlink"]["healthcheck"]["test"]
    assert words[0] == "CMD"
    root = computer.home / "superlink-1" / "root"
    return computer.execute(image, root, words[1:], directory / "health.log").wait(60) == 0
