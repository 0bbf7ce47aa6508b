"""Summaries by hand-worked samples, and the page on what a server learned by the study's tables."""

import math
from functools import cache

import numpy as np
import pytest
from made_study import made_study

from fbo_flower.algorithms import make_algorithm
from fbo_flower.cli import main as cli
from fbo_flower.clients import client_app
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.finite import mean_and_stderr
from fbo_flower.numerics.privacy import Account
from fbo_flower.reports.summary import (
    AgentMean,
    agent_curves,
    estimate,
    gain_line,
    summarise,
    summary_cells,
    to_markdown,
)
from fbo_flower.reports.traffic import PAGE, privacy_page
from fbo_flower.simulation import simulate
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.simulation.problems import make_problem
from fbo_flower.strategies import DPFTS
from fbo_flower.study import Study

NAN = math.nan


def a_study(values, *, num_rounds=2, **run):
    """Make a study of algorithm -> agent -> values."""
    trials = [
        {"algorithm": algorithm, "agent": agent, "round": k + 1, "trial": k, "config": {"C": 1.0}}
        | {"value": value, "failure": "diverged" if math.isnan(value) else ""}
        for algorithm, agents in values.items()
        for agent, own in agents.items()
        for k, value in enumerate(own)
    ]
    counts = {"bytes_down": 600, "bytes_up": 60, "floats_down": 30.0, "floats_up": 3.0}
    counts |= {"tasks": 3, "replies": 3, "failures": 1, "seconds": 1.5}
    rounds = [
        {"algorithm": algorithm, "round": k + 1, "mean_incumbent": k + 0.5, **counts}
        for algorithm in values
        for k in range(num_rounds)
    ]
    runs = [{"algorithm": algorithm, "num_agents": 3, "status": "finished", **run} for algorithm in values]
    return made_study(runs, trials=trials, rounds=rounds)


def rows_of(study, **options):
    return {row.algorithm: row for row in summarise(study, **options)}


def check(found, mean, stderr, num_agents):
    np.testing.assert_allclose([found.mean, found.stderr], [mean, stderr])
    assert found.num_agents == num_agents


# ts: mean incumbents 2, 3, 4; fts: 3, 5, 5.
TWO = {
    "ts": {"1": [1.0, 2.0, 3.0], "2": [2.0, 3.0, 4.0], "3": [3.0, 4.0, 5.0]},
    "fts": {"1": [1.0, 3.0, 3.0], "2": [3.0, 5.0, 2.0], "3": [5.0, 7.0, 7.0]},
}


def test_mean_and_standard_error_of_a_hand_worked_sample():
    # 1, 2, 3: s = 1, s.e. = 1 / sqrt(3); a NaN leaves 1, 3: s = sqrt(2), s.e. = 1
    sample = np.array([[1.0, 1.0, NAN, NAN], [2.0, NAN, 2.0, NAN], [3.0, 3.0, NAN, NAN]])
    mean, stderr = mean_and_stderr(sample)
    np.testing.assert_allclose(mean, [2.0, 2.0, 2.0, NAN])
    np.testing.assert_allclose(stderr, [1 / math.sqrt(3), 1.0, NAN, NAN])


def test_numbers_show_two_digits_of_their_error_and_one_agent_has_none():
    assert str(estimate(np.array([0.5]))) == "0.5000 ± -"
    assert str(estimate(np.array([]))) == "-"
    assert str(AgentMean(0.91234, 0.0041, 20)) == "0.9123 ± 0.0041"
    assert str(AgentMean(-123.4, 17.0, 20)) == "-123 ± 17"


def test_differences_are_paired_by_agent():
    row = rows_of(a_study(TWO), checkpoints=(1, 2, 9))["fts"]
    # at the end: fts 3, 5, 7, ts 3, 4, 5; differences 0, 1, 2: mean 1, s.e. 1 / sqrt(3)
    assert row.reference == "ts"
    check(row.final, 5.0, 2 / math.sqrt(3), 3)
    check(row.final_difference, 1.0, 1 / math.sqrt(3), 3)
    # after 1: differences 0, 1, 2; after 2: 1, 2, 3; nobody made 9
    check(row.differences[1], 1.0, 1 / math.sqrt(3), 3)
    assert row.differences[2].mean == 2.0
    assert row.checkpoints.keys() == row.differences.keys() == {1, 2}
    assert row.share_no_worse == 1.0


def test_algorithms_are_compared_after_as_many_evaluations_as_all_have_made():
    longer = {"ts": {agent: [*own, 99.0, 99.0] for agent, own in TWO["ts"].items()}, "fts": TWO["fts"]}
    rows = rows_of(a_study(longer), checkpoints=(1,))
    assert (rows["fts"].compared_at, rows["ts"].final.mean) == (3, 99.0)
    assert rows["fts"].final_difference.mean == rows["fts"].differences[3].mean == 1.0
    assert (rows["ts"].evaluations_to_reference, rows["fts"].evaluations_to_reference) == (3, 2)
    cells = summary_cells([*rows.values()])
    assert [head for head in cells if "ts at" in head] == ["gain on ts at 1", "gain on ts at 3"]


def test_the_gain_is_one_sentence_with_its_error():
    rows = summarise(a_study({"fts": TWO["fts"], "ts": TWO["ts"]}))
    assert gain_line(rows) == (
        "After 3 evaluations of each agent, fts is at 5.0 and ts, with which each agent tunes alone, at "
        "4.00: a gain of +1.00 ± 0.58 (standard error over agents). 3 of 3 agents are no worse."
    )
    assert gain_line(summarise(a_study(TWO))) == gain_line(rows[:1][:0]) == "", "ts is the first itself"


def test_only_target_agents_count_and_only_agents_of_both_runs_are_paired():
    rows = rows_of(a_study({"ts": {"2": [1.0], "10": [2.0]}, "fts": {"10": [5.0], "11": [9.0]}}))
    assert rows["fts"].final_difference.num_agents == 1
    assert rows["fts"].final_difference.mean == 3.0
    rows = rows_of(a_study(TWO, target_agents=["3"]))
    assert (rows["fts"].num_agents, rows["fts"].final.mean) == (1, 7.0)


def test_evaluations_to_what_the_reference_reaches_at_the_end():
    rows = rows_of(a_study(TWO))
    assert rows["fts"].evaluations_to_reference == 2  # 3, 5 >= 4
    assert rows["ts"].evaluations_to_reference == 3
    worse = rows_of(a_study({"ts": {"1": [1.0]}, "fts": {"1": [0.5, 0.9]}}))["fts"]
    assert worse.evaluations_to_reference is None
    assert worse.share_no_worse == 0.0
    assert "not reached" in to_markdown([worse])


def test_an_agent_that_stopped_keeps_its_incumbent_and_one_without_success_is_left_out():
    study = a_study({"fts": {"1": [1.0], "2": [NAN, 3.0, NAN], "3": [NAN, NAN]}})
    agents, curves = agent_curves(study, "fts")
    assert agents == ["1", "2", "3"]
    np.testing.assert_array_equal(curves, [[1, 1, 1], [NAN, 3, 3], [NAN, NAN, NAN]])
    (row,) = summarise(study, checkpoints=(1,))
    check(row.checkpoints[1], 1.0, NAN, 1)
    assert row.final == AgentMean(2.0, 1.0, 2)
    assert row.num_evaluations == (1, 3)
    assert row.failed_evaluations == 4


def test_tuning_alone_is_the_reference_if_the_study_has_it():
    assert rows_of(a_study({"fts": {"1": [1.0]}}))["fts"].reference is None
    assert rows_of(a_study({"fts": {"1": [1.0]}, "local-pne": {"1": [1.0]}}))["fts"].reference == "local-pne"
    assert rows_of(a_study(TWO), reference="fts")["ts"].final_difference.mean == -1.0
    with pytest.raises(ConfigError, match="expected one of ts, fts, got 'rgpe'"):
        summarise(a_study(TWO), reference="rgpe")


def test_a_study_that_discloses_nothing_says_so_and_shows_what_the_server_knows():
    study = a_study({"fts": {}}, num_with_value=None, disclosures={"none, default": 2, "none, operator": 1})
    (seen,) = summarise(a_study({"fts": {}}, num_rounds=3))
    assert (seen.final.mean, seen.num_agents) == (2.5, 3), "what the strategy saw"
    (row,) = summarise(study)
    assert (row.num_with_value, row.replies, row.lost_replies) == (None, 6, 2)
    assert (row.bytes_down, row.bytes_up) == (200.0, 20.0)  # 2 rounds of 600 and 60 bytes, 3 agents
    assert (row.floats_per_agent, row.seconds, row.refused_replies) == (22.0, 3.0, 0)
    cells = {head: cell for head, (cell,) in summary_cells([row]).items()}
    assert cells["best at end"] == cells["evaluations"] == cells["agents with a value"] == "not disclosed"
    assert cells["disclosed"] == "none (default): 2, none (operator): 1"
    assert (cells["replies"], cells["lost replies"], cells["up per agent-round"]) == ("6", "2", "20 B")


def test_markdown_has_a_line_per_algorithm_and_escapes_bars():
    markdown = to_markdown(summarise(a_study({"ts": TWO["ts"], "a|b\nc": TWO["fts"]})))
    lines = markdown.splitlines()
    assert len(lines) == 4
    assert lines[3].startswith(r"| a\|b c | 3 | 3 |")
    assert {line.replace(r"\|", "").count("|") for line in lines} == {lines[1].count("|")}


SMALL = {"num_features": 10, "num_candidates": 16, "num_path_features": 8}
SIMULATED = "Simulated: the noise is drawn from the study's seed and protects nobody."


@cache
def run(algorithm, problem="gp-samples", **options):
    made = make_algorithm(algorithm, options)
    rounds = None if "budget" in options else 4
    return simulate(problem, None, 3, made, rounds, engine="inline")


def test_amounts_are_per_agent_and_round():
    study = run("fts", **SMALL)
    text = privacy_page(study)
    assert "Per agent and round: 10 numbers and " in text
    assert f"{int(np.sum(study.rounds['bytes_up'])) / 12:.0f} B up" in text
    assert "no epsilon bounds what is learned" in text
    assert "18 rows of points and values" in text
    assert "and who chose it: trials (simulation)." in text


def test_epsilon_is_what_the_releases_cost_and_its_limits_are_said():
    text = privacy_page(run("dp-fts", noise_multiplier=2.0, sampling_rate=1.0, **SMALL))
    epsilon = Account({2.0: 3}).epsilon(1e-3)
    assert f"epsilon {epsilon:.3g} at delta 0.001 after 3 releases" in text
    assert "it does not cover trials that agents disclose beside it" in text
    text = privacy_page(run("dp-fts", noise="local", noise_multiplier=2.0, sampling_rate=1.0, **SMALL))
    assert "after 4 messages of one agent" in text
    assert "none was added" in privacy_page(run("dp-fts", noise_multiplier=0.0, **SMALL))


@pytest.mark.parametrize(("noise", "source"), [("central", "system"), ("local", "agents")])
def test_noise_of_a_simulation_protects_nobody_and_the_page_says_so(noise, source, tmp_path):
    problem = make_problem("gp-samples", 2, 0, {})
    journals = {node: {"journal": str(tmp_path / f"agent-{node}.db")} for node in range(2)}
    grid = InProcessGrid(client_app(problem, problem.space), 2, node_configs=journals)
    strategies = [DPFTS(num_agents=2, noise=noise, seed=seed, **SMALL) for seed in (None, 0)]
    studies = [run("dp-fts", noise=noise, **SMALL)]
    studies += [strategy.start(grid, num_rounds=3).study for strategy in strategies]
    simulated, deployed, with_seed = (privacy_page(study) for study in studies)
    sources = [study.settings["runs"][0]["privacy"]["noise_from"] for study in studies[:2]]
    assert sources == ["seed", source]
    assert SIMULATED in simulated
    assert SIMULATED not in deployed, "neither side has a seed"
    assert (SIMULATED in with_seed) == (noise == "central")


def test_a_study_without_counts_or_of_an_unknown_algorithm_is_described_without_promises(tmp_path):
    study = run("random")
    (settings,) = study.settings["runs"]
    unknown = {**study.settings, "runs": [{**settings, "algorithm": "of-another-house", "num_agents": 0}]}
    Study(unknown, study.trials, study.rounds).save(tmp_path)
    assert cli.run(["report", str(tmp_path), "--markdown"]) == 0
    text = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert "Not examined." in text
    assert "not described by what is installed here" in text
    assert "- numbers and - up" in text


def test_secure_sums_are_said_in_place_of_what_they_hide():
    text = privacy_page(run("fed-pne", "garland", budget=12, secure_sums=2))
    assert "Secure sums of at least 2 agents: " in text
    assert "| `secure.words`: " in text
    assert "`means`" not in text
