"""RFMS on real rows over the grid: faults, crafted models, and where no row may be found."""

import io
import json
import zipfile

import crafted_models
import numpy as np
import pytest
from federation import Recording
from flwr.app import Array, ArrayRecord, ConfigRecord

from fbo_flower.clients.site_agent import site_app
from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.models import unpack
from fbo_flower.reports.selection import selection_cells, selections
from fbo_flower.simulation import Agents, make_problem
from fbo_flower.simulation.agents import problem_app
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.strategies import RFMS

SMALL = {"method": "rand_mo", "num_trials": 5, "num_initial": 3}
OPENBOX, LOCKBOX, CURATORS = 0, 1, (2, 3, 4)


def problem(learner="elastic-net", **options):
    sites = {"openbox": OPENBOX, "lockbox": LOCKBOX}
    return make_problem(
        "breast-cancer-5sites", 5, 0, {"learner": learner, "split": "srs", **sites, **options}
    )


def run(made=None, faults=None, grid=InProcessGrid, options=None, node_configs=None, **settings):
    made = made or problem()
    strategy = RFMS(**{"num_agents": 5, "seed": 3, "round_timeout": 0.2, **SMALL, **settings})
    app = problem_app(made, strategy.algorithm, 3, agents=Agents(site_options=options))
    grid = grid(app, 5, faults=faults, node_configs=node_configs)
    return strategy.start(grid, num_rounds=None).study, grid


@pytest.fixture(scope="module")
def undisturbed():
    return run(grid=Recording)


def test_a_run_leaves_models_with_all_their_losses(undisturbed, tmp_path):
    study, _ = undisturbed
    models = study.models
    assert len(models) == 5
    assert not {"answers withheld", "epsilon spent"} & set(selection_cells(selections(study)))
    assert np.isfinite([models["local_loss"], models["remote_loss"]]).all()
    kept = models["on_front"] | models["shipped"]
    assert models["shipped"].sum() == 1
    for column in ("openbox_outbag", "curators_outbag", "lockbox"):
        np.testing.assert_array_equal(np.isfinite(models[column]), kept)
    np.testing.assert_array_equal(models["model"] != "", kept)
    study.save(tmp_path)
    assert type(study).load(tmp_path) == study


def test_losses_are_those_of_the_models_on_the_rows(undisturbed):
    study, grid = undisturbed
    made = problem()
    sent = {}
    for content in grid.contents:
        names, arrays = str(content.get("config", {}).get("names", "")), content.get("arrays", {})
        if "manifest" in names:
            sent[int(content["config"]["trial"])] = arrays["model"].numpy()
    expected = {
        "remote_loss": (CURATORS, ["inbag"]), "curators_outbag": (CURATORS, ["outbag"]),
        "lockbox": ([LOCKBOX], ["inbag", "outbag"]), "openbox_outbag": ([OPENBOX], ["outbag"]),
    }  # fmt: skip
    on_front = [row for row in study.models if row["on_front"]]
    assert on_front
    for row in on_front:
        model = unpack(sent[row["trial"]])
        for column, (sites, names) in expected.items():
            bags = [getattr(made.site(site), name) for site in sites for name in names]
            wrong = np.concatenate([model.predict(bag.x) != bag.y for bag in bags])
            assert row[column] == pytest.approx(wrong.mean(), abs=1e-12)


def test_lockbox_is_asked_at_the_end_only(undisturbed):
    study, grid = undisturbed
    configs = [content.get("config", {}) for content in grid.contents]
    mine = [config for config in configs if config.get("agent") == str(LOCKBOX)]
    phases = [config["phase"] for config in mine if "phase" in config]
    assert set(phases) == {"finish"}
    assert study.judgements.where(agent=str(LOCKBOX))["split"].tolist() == ["outbag"] * (len(phases) // 2)


def inflated(data):
    """Return the bytes themselves and, if they are an archive, those of its parts."""
    found = [data]
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found += [archive.read(name) for name in archive.namelist()]
    return found


def everything_sent(contents):
    for content in contents:
        for record in content.values():
            if isinstance(record, ArrayRecord):
                for array in record.values():
                    yield from inflated(array.numpy().tobytes())
            elif isinstance(record, ConfigRecord):
                yield json.dumps({k: str(v) for k, v in record.items()}).encode()


def rows_in(pieces, rows):
    """Return how many rows stand somewhere in the bytes, as float64 or float32, or as text."""
    blob = b"|".join(pieces)

    def forms(row):
        return row.tobytes(), row.astype(np.float32).tobytes(), str(row.tolist()).encode()[1:-1]

    return sum(any(form in blob for form in forms(row)) for row in rows)


def secret_rows(made, sites):
    return np.concatenate([np.asarray(bag.x, dtype=np.float64) for site in sites for bag in made.site(site)])


def scaled(made, contents):
    """Return the openbox's rows as its first model's pipeline makes them, as a model would carry them."""
    sent = next(content["arrays"]["model"] for content in contents if "model" in content.get("arrays", {}))
    return unpack(sent.numpy())[:-1].transform(made.site(OPENBOX).inbag.x)


def test_no_row_stands_in_any_message_or_in_the_servers_files(undisturbed, tmp_path):
    study, grid = undisturbed
    study.save(tmp_path)
    made = problem()
    made.check_data()
    rows = secret_rows(made, range(5))
    files = [piece for path in tmp_path.rglob("*.*") for piece in inflated(path.read_bytes())]
    pieces = [*everything_sent(grid.contents), *files]
    assert len(pieces) > 30
    assert rows_in(pieces, rows) == 0
    assert rows_in(pieces, scaled(made, grid.contents)) == 0
    assert rows_in([*pieces, rows[7].tobytes()], rows) > 0, "the search would find one"


def test_support_vectors_are_rows_of_the_openbox_which_is_why_they_are_refused():
    made = problem("svm")
    strategy = RFMS(num_agents=5, seed=3, **{**SMALL, "num_trials": 3})
    grid = Recording(problem_app(made, strategy.algorithm, 3), 5)
    with pytest.raises(ObjectiveError, match="all of 3 evaluations failed"):
        strategy.start(grid, num_rounds=None)
    study = strategy.study
    assert rows_in(everything_sent(grid.contents), secret_rows(made, [OPENBOX])) == 0
    assert all("support_vectors_" in reason for reason in study.models["failure"])
    assert not any("model" in content.get("arrays", {}) for content in grid.contents)
    _, grid = run(made, grid=Recording, num_trials=3, options={"allow_models_with_data": True})
    assert rows_in(everything_sent(grid.contents), scaled(made, grid.contents)) > 20


def test_malicious_payloads_cost_one_trial_each_and_no_curator():
    wild = crafted_models.with_tree_array(crafted_models.tree(), "nodes", crafted_models.wild_child)
    bomb = crafted_models.zipped({"schema.json": b"0" * 300_000_000})
    payloads = iter([wild, bomb])

    def change(content):
        content["arrays"]["model"] = Array(next(payloads))
        return content

    study, _ = run(faults={OPENBOX: Fault("malformed", [2, 4], change=change)})
    failed = study.models["failure"] != ""
    assert failed.tolist() == [False, True, False, True, False]
    assert [study.models["failure"][i].count("refused: ") for i in (1, 3)] == [len(CURATORS)] * 2
    assert np.isfinite(study.models["remote_loss"][~failed]).all()
    assert not (study.models["on_front"] | study.models["shipped"])[failed].any()
    assert study.rounds["failed_trials"].tolist() == [0, 3, 0, 3, 0]


def judged(study, agent):
    return study.judgements.where(agent=agent, split="inbag")["trial"].tolist()


def lie(content):
    said = json.loads(content["config"]["values"]) | {"num_rows": 10**15}
    content["config"]["values"] = json.dumps(said)
    return content


def test_curators_that_are_away_or_answer_nonsense_are_left_out_and_come_back(undisturbed):
    away = {2: Fault("down", rounds=[2, 3]), 3: Fault("raising", rounds=[2, 3])}
    study, _ = run(faults={**away, 4: Fault("malformed", rounds=[4], change=lie)})
    assert study.models["local_loss"].tolist() == undisturbed[0].models["local_loss"].tolist()
    # the grid is asked who is there for the round after the one that has begun
    assert (judged(study, "2"), judged(study, "3")) == ([3, 4], [0, 3, 4])
    assert set(judged(study, "4")) >= {0, 1, 2, 4}
    assert study.rounds["refused"].tolist() == [0, 0, 0, 1, 0]


def test_budgets_close_a_curator_and_the_study_holds_them_and_the_epsilon_spent():
    study, _ = run(node_configs={2: {"query_budget": 2}, 3: {"answer_noise_epsilon": 0.5}})
    answers = study.judgements.where(agent="2", split="inbag")
    assert np.isfinite(answers["loss"]).tolist() == [True, True, False, False, False]
    assert all("query budget of 2" in reason for reason in answers["failure"][2:])
    assert study.models["failure"].tolist() == [""] * 5
    assert study.judgements.where(agent="3", split="inbag")["epsilon"].tolist() == [0.5, 1.0, 1.5, 2.0, 2.5]
    assert set(study.judgements.where(agent="4")["epsilon"].tolist()) == {0.0}
    cells = selection_cells(selections(study))
    withheld = sum("budget" in reason for reason in study.judgements["failure"])
    assert cells["answers withheld"] == [str(withheld)]
    assert cells["epsilon spent"] == ["2.5"]


def test_in_an_app_of_ones_own_the_operator_gives_roles_and_every_site_gets_its_answer_once():
    made, answers = problem(), {}

    def on_finish(answer, context):
        assert answer.agent not in answers
        answers[answer.agent] = answer

    app = site_app(
        made.make_learner().make_model, made.space, lambda context: made.site(context.partition),
        seed=3, on_finish=on_finish,
    )  # fmt: skip
    roles = {site: {"role": made.role(site), "in_process": True} for site in range(5)}
    grid = InProcessGrid(app, 5, node_configs=roles)
    study = RFMS(num_agents=5, seed=3, **SMALL).start(grid, num_rounds=None).study
    with pytest.raises(ConfigError, match="role: expected one of"):
        RFMS(num_agents=5, seed=3, wait_seconds=0.0, **SMALL).start(InProcessGrid(app, 5), num_rounds=None)
    assert sorted(answers) == ["0", "1", "2", "3", "4"]
    assert answers[str(LOCKBOX)].config is None
    losses = study.models["local_loss"]
    assert answers["0"].value == -losses.min()
    assert answers["0"].config == study.models["config"][int(np.argmin(losses))]
    # the lockbox has judged the models of the end, the openbox has trained all of them too
    num_judged = int((study.models["model"] != "").sum())
    assert answers[str(LOCKBOX)].num_evaluations == num_judged
    assert answers[str(OPENBOX)].num_evaluations == 5 + num_judged
