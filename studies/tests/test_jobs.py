from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from fbo_flower.errors import ConfigError
from studies import jobs
from studies.jobs import job, load, open_directory, run_jobs, stack


@pytest.fixture(autouse=True)
def _processes(monkeypatch):
    monkeypatch.setattr(jobs, "ProcessPoolExecutor", ProcessPoolExecutor)


def power(label: str, x: float, exponent: float) -> dict[str, np.ndarray]:
    return {"y": np.array([x**exponent])}


def fail(x: float) -> dict[str, np.ndarray]:
    raise RuntimeError(f"cell {x}")


def test_jobs_are_computed_once_and_found_again_by_their_rows(tmp_path):
    directory = open_directory(tmp_path, {"a": 1})
    seen = []
    cells = [job(power, "a/b c", float(i), exponent=2) for i in range(3)]
    assert cells[1].name.startswith("power-a-b-c-1-0-"), "and a hash, because of the slash"
    run_jobs(cells, directory, 1, lambda *heard: seen.append(heard), "squares")
    run_jobs([job(power, "a/b c", 1.0, exponent=None)], directory, 1)  # not run: its file is there
    assert load(directory, power, "a/b c", 2.0)["y"].tolist() == [4.0]
    assert stack(directory, "y", (0.0, 2.0), power, "a/b c").tolist() == [[0.0], [4.0]]
    assert seen == [("squares", done, 3) for done in range(4)]


def test_a_failing_job_leaves_the_finished_ones(tmp_path):
    directory = open_directory(tmp_path, {})
    with pytest.raises(RuntimeError, match="cell 7"):
        run_jobs([job(power, "x", 3.0, exponent=2), job(fail, 7)], directory, 1)
    assert load(directory, power, "x", 3.0)["y"][0] == 9.0
    assert [path.name for path in (directory / "jobs").iterdir()] == ["power-x-3.0.npz"]


def test_a_directory_of_other_settings_is_refused(tmp_path):
    open_directory(tmp_path, {"starts": 2})
    open_directory(tmp_path, {"starts": 2})
    with pytest.raises(ConfigError, match="same settings"):
        open_directory(tmp_path, {"starts": 8})


def test_damaged_results_are_config_errors(tmp_path):
    directory = open_directory(tmp_path / "jobs", {"a": 1})
    (directory / "jobs" / "fail-1.npz").write_bytes(b"PK cut off")
    with pytest.raises(ConfigError, match=r"fail-1\.npz.*write it again"):
        load(directory, fail, 1)
    (directory / "experiment.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="same settings"):
        open_directory(directory, {"a": 1})
