from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from fbo_flower.errors import ConfigError
from studies import jobs
from studies.jobs import Job, load_job, open_directory, run_jobs


@pytest.fixture(autouse=True)
def _processes(monkeypatch):
    monkeypatch.setattr(jobs, "ProcessPoolExecutor", ProcessPoolExecutor)


def square(x: float) -> dict[str, np.ndarray]:
    return {"y": np.array([x * x])}


def fail(x: float) -> dict[str, np.ndarray]:
    raise RuntimeError(f"cell {x}")


def test_jobs_are_computed_once_and_found_again(tmp_path):
    directory = open_directory(tmp_path, {"a": 1})
    seen = []
    cells = [Job(f"c{i}", square, {"x": float(i)}) for i in range(3)]
    run_jobs(cells, directory, 1, lambda done, of: seen.append((done, of)))
    run_jobs([*cells[:1], Job("c1", fail, {"x": 1.0})], directory, 1)  # not run: its file is there
    assert [load_job(directory, c.name)["y"][0] for c in cells] == [0.0, 1.0, 4.0]
    assert seen == [(done, 3) for done in range(4)]


def test_a_failing_job_leaves_the_finished_ones(tmp_path):
    directory = open_directory(tmp_path, {})
    with pytest.raises(RuntimeError, match="cell 7"):
        run_jobs([Job("good", square, {"x": 3.0}), Job("bad", fail, {"x": 7})], directory, 1)
    assert load_job(directory, "good")["y"][0] == 9.0
    assert not (directory / "jobs" / "bad.npz").exists()


def test_a_directory_of_other_settings_is_refused(tmp_path):
    open_directory(tmp_path, {"starts": 2})
    open_directory(tmp_path, {"starts": 2})
    with pytest.raises(ConfigError, match="same settings"):
        open_directory(tmp_path, {"starts": 8})


def test_damaged_results_are_config_errors(tmp_path):
    directory = open_directory(tmp_path / "jobs", {"a": 1})
    (directory / "jobs" / "one.npz").write_bytes(b"PK cut off")
    with pytest.raises(ConfigError, match=r"one\.npz.*write it again"):
        load_job(directory, "one")
    (directory / "experiment.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="same settings"):
        open_directory(directory, {"a": 1})
