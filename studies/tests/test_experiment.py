"""The harness: jobs are computed once, differences are paired, tables say what the runs returned."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figure_text import unreadable  # needs matplotlib

from fbo_flower.errors import ConfigError
from fbo_flower.simulation import make_problem
from studies import experiment as harness
from studies.experiment import Experiment, Part, curve_of, job, load, open_directory, run_jobs


def power(label: str, x: float, exponent: float) -> dict[str, np.ndarray]:
    return {"y": np.array([x**exponent])}


def fail(x: float) -> dict[str, np.ndarray]:
    raise RuntimeError(f"job {x}")


@pytest.mark.parametrize("workers", [1, 2])
def test_jobs_are_computed_once_and_found_again_by_their_rows(workers, tmp_path):
    directory = open_directory(tmp_path, {"a": 1})
    seen = []
    jobs = [job(power, "a/b c", float(i), exponent=2) for i in range(3)]
    assert jobs[1].name.startswith("power-a-b-c-1-0-"), "and a hash, because of the slash"
    run_jobs(jobs, directory, workers, lambda *heard: seen.append(heard), "squares")
    run_jobs([job(power, "a/b c", 1.0, exponent=None)], directory, workers)  # not run: its file is there
    assert load(directory, power, "a/b c", 2.0)["y"].tolist() == [4.0]
    assert seen == [("squares", done, 3) for done in range(4)]


def test_a_failing_job_leaves_the_finished_ones(tmp_path):
    directory = open_directory(tmp_path, {})
    with pytest.raises(RuntimeError, match="job 7"):
        run_jobs([job(power, "x", 3.0, exponent=2), job(fail, 7)], directory, 1)
    assert [path.name for path in (directory / "jobs").iterdir()] == ["power-x-3.0.npz"]


def test_a_directory_of_other_settings_and_a_damaged_result_are_refused(tmp_path):
    directory = open_directory(tmp_path, {"starts": 2})
    open_directory(tmp_path, {"starts": 2})
    with pytest.raises(ConfigError, match="same settings"):
        open_directory(tmp_path, {"starts": 8})
    (directory / "jobs" / "fail-1.npz").write_bytes(b"PK cut off")
    with pytest.raises(ConfigError, match=r"fail-1\.npz.*write it again"):
        load(directory, fail, 1)


class Doubled:
    """A problem that knows the value without noise: twice `x`."""

    def score(self, config: Any, partition: int) -> float:
        return 2.0 * config["x"]


def test_a_curve_is_the_true_score_of_the_best_value_seen_and_failures_improve_nothing():
    configs, values = [{"x": x} for x in (3.0, 1.0, 9.0, 4.0)], np.array([0.5, 0.9, np.nan, 0.7])
    assert curve_of(Doubled(), 0, configs, values).tolist() == [6.0, 2.0, 2.0, 2.0]
    assert curve_of(object(), 0, configs, values).tolist() == [0.5, 0.9, 0.9, 0.9]


@pytest.mark.parametrize("algorithm", ["ei", "fed-ei"])
def test_a_budget_is_the_evaluations_of_every_agent(algorithm):
    study = harness.run_budget(make_problem("f1", 4, 0), algorithm, {"num_initial": 3}, 0, 5)
    assert [len(harness.evaluations(study, agent)[1]) for agent in range(4)] == [5, 5, 5, 5]


# -- parts ---------------------------------------------------------------------------------------

AGENTS, LENGTH = 4, 6


def measured(problem: str, row: str, seed: int, gain: dict[str, float]) -> dict[str, np.ndarray]:
    """Curves that differ much by seed and agent, and by `gain` from those of the row "base"."""
    rng = np.random.default_rng([seed, len(problem)])
    agents = AGENTS // 2 if row == "few" else AGENTS
    curves = np.maximum.accumulate(100 * rng.random((AGENTS, LENGTH)), axis=1)[:agents] + gain[row]
    return {"best": curves, "cost": np.full(agents, gain[row]), "seconds": np.array(float(seed))}


def joint(problem: str, seed: int, gain: dict[str, float]) -> dict[str, np.ndarray]:
    found = {row: measured(problem, row, seed, gain) for row in gain}
    return {f"{row}/{name}": values for row, own in found.items() for name, values in own.items()}


GAIN = {"base": 0.0, "ahead": 0.5, "behind": -0.5, "few": 1.0}


def part(**more: Any) -> Part:
    common = {"problems": ["one", "three"], "rows": [*GAIN], "seeds": range(7, 10), "common": {"gain": GAIN}}
    chosen = {"baseline": "base", "at": (2, 6), "drawn": "best", **common, **more}
    return Part("test part", **{"run": measured, **chosen})


def lines_of(directory: Path, *parts: Part) -> dict[tuple[str, ...], dict[str, str]]:
    files = Experiment("test", lambda quick, directory: parts).run("test", directory, True, 1)
    assert [file.name for file in files[:2]] == ["results.md", "results.csv"]
    assert all(file.read_bytes()[:4] == b"\x89PNG" for file in files[2:])
    rows = csv.DictReader((directory / "results.csv").open(encoding="utf-8"))
    return {tuple(row[name] for name in ("problem", "row", "metric", "at", "other")): row for row in rows}


@pytest.mark.parametrize("run", [measured, joint])
def test_differences_are_paired_by_seed_and_agent(run, tmp_path):
    found = lines_of(tmp_path, part(run=run, joint=run is joint, champion="ahead"))
    row = found["one", "ahead", "best", "6", "base"]
    values = np.array([measured("one", "ahead", seed, GAIN)["best"][:, 5] for seed in range(7, 10)])
    assert float(row["mean"]) == pytest.approx(values.mean(), rel=1e-5)
    assert float(row["error"]) == pytest.approx(values.mean(axis=1).std(ddof=1) / np.sqrt(3), rel=1e-5)
    assert (float(row["gain"]), float(row["gain_error"])) == (pytest.approx(0.5), pytest.approx(0, abs=1e-9))
    assert float(row["deviation"]) == pytest.approx((values - 0.5).std(), rel=1e-5)
    assert (row["seeds"], row["agents"], row["reached"]) == ("3", "4", "6")
    few = found["three", "few", "best", "2", "base"]
    assert (few["agents"], float(few["gain"])) == ("2", pytest.approx(1.0)), "of the agents that both have"
    assert found["one", "behind", "best", "6", "base"]["reached"] == ""
    assert float(found["one", "ahead", "best", "2", "behind"]["gain"]) == pytest.approx(1.0)
    assert found["one", "ahead", "cost", "", "base"]["mean"] == "0.5"
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "## one: best" in text
    assert "## three: numbers" in text
    leads = next(line for line in text.splitlines() if line.startswith("| behind | 6 | 2 |"))
    assert leads.endswith(" | 2 | 2 | 0 | 0 |"), "ahead of it on both problems"


def test_repetitions_on_one_agent_do_not_shrink_the_standard_error(tmp_path):
    error = float(lines_of(tmp_path, part(over="agents"))["one", "base", "best", "6", ""]["error"])
    values = np.array([measured("one", "base", seed, GAIN)["best"][:, 5] for seed in range(7, 10)])
    assert error == pytest.approx(values.mean(axis=0).std(ddof=1) / np.sqrt(AGENTS), rel=1e-5)


def test_the_better_of_several_runs_counts_at_each_place(tmp_path):
    directory = open_directory(tmp_path, {})
    two = part(better={"base": ["first", "second"]}, problems=["one"], seeds=range(1))
    for label, best in {"first": [0.0, 1.0, 5.0], "second": [0.0, 2.0, 3.0]}.items():
        harness.save(directory, two.job("one", label, 0), {"best": np.array([best])})
    assert two.better_of(directory, "one", "base")["best"][0].tolist() == [[0.0, 2.0, 5.0]]


def test_a_stopped_experiment_continues_and_tells_of_its_finished_seeds(tmp_path, monkeypatch):
    once = lines_of(tmp_path, part(seeds=range(7, 8)))
    assert once["one", "ahead", "best", "6", "base"]["error"] == "", "a single seed has no error"
    ran, save = list[int](), harness.save
    monkeypatch.setattr(
        harness, "save", lambda to, job, found: (ran.append(job.row[-1]), save(to, job, found))
    )
    again = lines_of(tmp_path, part())
    assert set(ran) == {8, 9}
    assert again["one", "ahead", "best", "6", "base"]["seeds"] == "3"


@pytest.mark.parametrize("how", [{"against": "cost", "how": "log"}, {"problems": ["one"]}])
def test_pictures_can_be_read(how, tmp_path, monkeypatch):
    kept: list[Any] = []
    monkeypatch.setattr(harness, "save_figure", lambda figure, path, dpi: kept.append(figure) or path)
    directory = open_directory(tmp_path, {})
    rows = ["base", *(f"a row with a long name and number {n}" for n in range(9))]
    chosen = part(**how, rows=rows, common={"gain": dict.fromkeys(rows, 0.5)})
    run_jobs([each for place in range(3) for each in chosen.jobs(place)], directory, 1)
    harness.draw(chosen, harness.lines_of(chosen, directory), Path("unused.png"))
    (figure,) = kept
    assert [axis.get_title(loc="left") for axis in figure.axes] == list(chosen.problems)
    assert {axis.get_xlabel() for axis in figure.axes} == {how.get("against", "evaluations")}
    shown = len(chosen.rows) - ("how" not in how)
    assert len(figure.axes[0].get_legend_handles_labels()[1]) == shown, "the baseline is the axis"
    assert unreadable(figure, covered=False) == []
