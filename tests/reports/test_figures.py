"""Figures: what is drawn, not how it looks."""

import math
import struct

import numpy as np
import pytest

from fbo_flower.cli.main import run
from fbo_flower.errors import ConfigError
from fbo_flower.reports.curves import best_by_time
from fbo_flower.reports.figures import draw, figure, traffic_figure
from fbo_flower.reports.importance import study_axes
from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.study import Study

pytest.importorskip("matplotlib")
from figure_text import texts, unreadable  # needs matplotlib
from made_study import changed, made_study

pytestmark = pytest.mark.usefixtures("few_trees")
NAN = math.nan


def a_study(
    algorithms=("ts", "fts", "rgpe"), *, num_agents=4, num_evaluations=12, with_regret=False, num_bytes=1000,
    floats=40.0, **run,
):  # fmt: skip
    rng = np.random.default_rng(0)
    trials, regret = [], []
    for algorithm in algorithms:
        for agent in map(str, range(num_agents)):
            values = rng.random(num_evaluations)
            for k, value in enumerate(values.tolist()):
                row = {"algorithm": algorithm, "agent": agent}
                trials.append(row | {"round": k, "trial": k, "value": value})
                known = {"cumulative": (1 - values[: k + 1]).sum(), "simple": (1 - values[: k + 1]).min()}
                regret.append(row | {"evaluations": k + 1} | known)
    traffic = {"bytes_down": num_bytes, "bytes_up": num_bytes, "floats_down": floats, "floats_up": floats}
    rounds = [{"algorithm": algorithm, "round": k} | traffic for algorithm in algorithms for k in (1, 2)]
    described = {"problem": "digits", "num_agents": num_agents, "num_initial": 3, "metric": "accuracy"} | run
    runs = [{"algorithm": algorithm, **described} for algorithm in algorithms]
    return made_study(runs, trials=trials, rounds=rounds, regret=regret if with_regret else [])


def test_awful_first_evaluations_do_not_flatten_the_curves():
    study = a_study(("fts",), num_evaluations=20)
    values = np.tile(np.r_[-1e6, -1e6, -50.0, np.linspace(0.8, 0.9, 17)], 4)
    rows = [{**row, "value": value} for row, value in zip(study.trials, values.tolist(), strict=True)]
    ax = figure(changed(study, trials=rows)).axes[0]
    low, high = ax.get_ylim()
    assert 0.6 < low < 0.85
    assert 0.9 < high < 1.0


@pytest.mark.filterwarnings("error")
def test_known_regret_is_shown_on_a_logarithmic_axis_which_zero_does_not_break(tmp_path):
    simple, cumulative, *_ = figure(a_study(with_regret=True)).axes
    assert (simple.get_yscale(), cumulative.get_yscale()) == ("log", "linear")
    assert (len(simple.lines), len(cumulative.lines)) == (3, 3)
    study = a_study(("fts",), with_regret=True)
    rows = [{**row, "simple": 0.0 if row["evaluations"] > 5 else 0.1} for row in study.regret]
    study = changed(study, regret=rows)
    assert draw(study, tmp_path / "a.png") == ""
    ax = figure(study).axes[0]
    assert np.asarray(ax.lines[0].get_ydata()).min() == ax.get_ylim()[0] > 0


def with_floats(**floats):
    """Return a study with these floats in the rounds of each algorithm, half of them each way."""
    study = a_study(tuple(floats))
    halves = [floats[row["algorithm"]][row["round"] - 1] / 2 for row in study.rounds]
    rows = zip(study.rounds, halves, strict=True)
    return changed(study, rounds=[{**row, "floats_down": half, "floats_up": half} for row, half in rows])


def test_traffic_is_a_picture_of_its_own_if_there_is_any():
    _, sizes, table = traffic_figure(a_study()).axes
    assert [np.asarray(line.get_ydata()).tolist() for line in sizes.lines] == [[2000.0, 4000.0]] * 3
    row = ["ts", "500 B", "500 B", "20", "12", "none"]
    assert [text.get_text() for text in table.texts][6:12] == row
    private = a_study(("dp-fts",), privacy={"epsilon": 3.14159, "delta": 1e-5}, floats=0.0)
    sizes, table = traffic_figure(private).axes
    assert table.texts[-1].get_text() == "epsilon 3.14"
    with pytest.raises(ConfigError, match="expected a study with counted bytes"):
        traffic_figure(a_study(num_bytes=0, floats=0.0))


def test_floats_are_added_up_by_round_over_all_agents_and_both_ways():
    ax = traffic_figure(with_floats(ts=[0.0, 0.0], fts=[20.0, 30.0], rgpe=[6.0, 0.0], ei=[NAN, NAN])).axes[0]
    assert [line.get_label() for line in ax.lines] == ["fts", "rgpe"]
    assert [np.asarray(line.get_ydata()).tolist() for line in ax.lines] == [[20.0, 50.0], [6.0, 6.0]]
    assert ax.get_yscale() == "linear"
    assert "nothing exchanged: ts; not counted: ei" in [text.get_text() for text in ax.texts]
    ax = traffic_figure(with_floats(fts=[2e5, 3e5], rgpe=[0.0, 8.0])).axes[0]
    assert ax.get_yscale() == "log"
    np.testing.assert_array_equal(np.asarray(ax.lines[1].get_ydata()), [NAN, 8.0])


def said(study):
    return "\n".join(text.get_text() for text in texts(figure(study)))


def test_a_study_without_values_says_how_to_disclose_them_or_why_all_failed():
    study = a_study(("fts",))
    rounds = [{**row, "mean_incumbent": NAN} for row in study.rounds]
    text = said(changed(study, trials=[], rounds=rounds))
    assert "4 agents, no value disclosed" in text
    assert "The agents disclosed no values" in text
    assert 'disclose = "incumbent" or "trials" in the node_config' in text
    rows = [{**row, "value": NAN, "failure": "out of memory"} for row in study.trials]
    text = " ".join(said(changed(study, trials=rows, rounds=rounds)).split())
    assert "All 48 disclosed evaluations failed. Most common reason: out of memory" in text


SPACE = SearchSpace(
    {
        "rate": Float(1e-6, 1.0, log=True),
        "layers": Int(1, 64),
        "kernel": Categorical(["rbf", "polynomial of some degree", True, 1.5, None]),
        "gamma": Float(1e-3, 1e3, log=True, active_when={"kernel": "rbf"}),
        "depth": Ordinal([1, 2, 4]),
        **{f"parameter_with_a_long_name_{k}": Float(0, 1) for k in range(4)},
    }
)


def tuned(algorithms=("ts", "fts portfolio"), *, space=SPACE, **run):
    """Return a study with configurations, whose values depend on the rate, the kernel and the depth."""
    study = a_study(algorithms, space=space.to_json(), **run)
    rng = np.random.default_rng(1)
    rows = []
    for row in study.trials:
        config = space.decode(rng.random(space.dimension))
        value = 0.01 * float(space.encode(config)[0]) - abs(math.log10(config.get("rate", 1e-3)) + 3)
        value += 2 * (config.get("kernel") == "rbf") + 0.1 * config.get("depth", 0)
        rows.append({**row, "config": config, "value": value})
    return changed(study, trials=rows)


def test_a_slice_has_the_scale_and_the_condition_of_its_parameter():
    chosen = {axis.name: axis for axis in study_axes(tuned())}
    assert chosen["depth"].choices == (1, 2, 4)
    five = SearchSpace(dict(list(SPACE.parameters.items())[:5]))
    axes = {ax.get_xlabel(): ax for ax in figure(tuned(space=five), wide=True).axes}
    assert axes["rate"].get_xscale() == "log"
    assert axes["gamma (if kernel = rbf)"].get_xscale() == "log"
    labels = [label.get_text() for label in axes["kernel"].get_xticklabels()]
    assert labels == ["rbf", "polynomial …", "True", "1.5", "None"]
    configs = [{"kernel": True}, {"kernel": 1}, {"kernel": None}, {}]
    np.testing.assert_array_equal(chosen["kernel"].positions(configs), [2.0, NAN, 4.0, NAN])
    bare = study_axes(made_study([{"algorithm": "fts"}], trials=tuned(("fts",)).trials))
    guessed = {axis.name: axis.choices is not None for axis in bare}
    assert (guessed["rate"], guessed["kernel"]) == (False, True), "from configurations, without a space"


def test_a_slice_shows_every_trial_where_its_parameter_is_active_and_rings_the_best():
    study = tuned(("fts",), num_agents=9, space=SearchSpace({"rate": Float(1e-6, 1.0, log=True)}))
    dots, rings = figure(study, wide=True).axes[1].collections
    found = np.asarray(dots.get_offsets())
    np.testing.assert_allclose(found[:, 0], [config["rate"] for config in study.trials["config"]])
    np.testing.assert_allclose(found[:, 1], study.trials["value"])
    assert sorted(np.asarray(rings.get_offsets())[:, 1]) == sorted(b["value"] for b in study.best.values())


STUDIES = {
    "regret": lambda: a_study(with_regret=True),
    "long names": lambda: a_study(("a label that is rather long, seed 1", "fts"), problem="p" * 60),
    "many agents": lambda: a_study(("fts",), num_agents=30),
    "nine parameters": tuned,
    "no rounds": lambda: changed(a_study(), trials=[], rounds=[]),
}


@pytest.mark.parametrize("name", STUDIES)
def test_no_text_is_clipped_or_covered(name):
    study = STUDIES[name]()
    drawings = [figure(study)] + ([traffic_figure(study)] if len(study.rounds) else [])
    for drawing in drawings:
        assert unreadable(drawing) == []


def test_a_picture_has_the_size_of_the_figure_whatever_the_names_in_it(tmp_path):
    study, path = a_study(("$x_{", "fts")), tmp_path / "new" / "study.png"
    assert draw(study, path) == ""
    size = struct.unpack(">II", path.read_bytes()[16:24])
    assert size == tuple(round(200 * inch) for inch in figure(study).get_size_inches())
    assert sorted(p.name for p in path.parent.iterdir()) == ["study-traffic.png", "study.png"]
    for name in ("picture", "picture.bmp"):
        assert "expected a name that ends in .pdf, .png, .svg" in draw(study, tmp_path / name)
        assert not (tmp_path / name).exists()


# Best values against time

BEGIN = 1.75e9  # real clocks count from 1970


def timed(*algorithms, with_times=True, **run):
    """Return a study of three agents whose trials overlap; a fifth of them failed, and one has no time."""
    rng, study = np.random.default_rng(1), a_study(algorithms, num_agents=3, num_evaluations=9, **run)
    trials, times, clocks = [], [], dict[tuple[str, str], float]()
    for row in study.trials:
        failed, owner = bool(rng.random() < 0.2), (row["algorithm"], row["agent"])
        trials.append(row | {"value": NAN if failed else rng.normal(), "failure": "no" if failed else ""})
        started = clocks.get(owner, BEGIN)
        clocks[owner] = started + {"0": 1.0, "1": 4.0, "2": 40.0}[row["agent"]] * float(rng.lognormal())
        if (row["agent"], row["trial"]) != ("1", 4):
            key = {name: row[name] for name in ("algorithm", "agent", "trial")}
            times.append(key | {"started": started, "ended": clocks[owner]})
    return changed(study, trials=trials, times=times if with_times else [])


def test_the_drawn_line_is_the_mean_over_target_agents_and_time_counts_from_the_first_of_all():
    study = timed("ts", "fts")
    ax = figure(study, x="time").axes[0]
    assert "Seconds" in ax.get_xlabel()
    for name, line in zip(("ts", "fts"), ax.lines, strict=False):
        _, grid, curves = best_by_time(study, name)
        known = [column[np.isfinite(column)] for column in curves.T]
        means = [sum(column) / len(column) if len(column) else NAN for column in known]
        assert line.get_label() == name
        np.testing.assert_array_equal(line.get_xdata(), grid)
        np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), means)
    study = timed("ts", target_agents=["2"])
    _, grid, curves = best_by_time(study, "ts")
    assert curves.shape == (1, 9)
    np.testing.assert_array_equal(grid, np.sort(study.times.where(agent="2")["ended"]) - BEGIN)


def test_without_times_it_says_whose_are_missing_and_the_report_keeps_the_picture(tmp_path, capsys):
    both = Study.merge([timed("ts"), timed("fts", with_times=False)])
    with pytest.raises(ConfigError, match=r'of fts; .*disclose = "trials"'):
        figure(both, x="time")
    with pytest.raises(ConfigError, match="expected one of evaluations, time, got 'rounds'"):
        figure(both, x="rounds")
    timed("ts", with_times=False).save(tmp_path)
    (tmp_path / "report.png").write_bytes(b"drawn")
    assert run(["report", str(tmp_path), "--x", "time", "-q"]) == 2
    assert "error: --x time: expected times of trials, got none of ts" in capsys.readouterr().err
    assert (tmp_path / "report.png").read_bytes() == b"drawn"
