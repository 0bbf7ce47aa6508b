"""RFMS without Flower: what is asked, what is told, and what comes of missing, late and wrong answers."""

import json
from dataclasses import replace

import numpy as np
import pytest
from contract import SQUARE, AlgorithmContract, Run, check_variant, hills, same, step

from fbo_flower.algorithms import RFMS
from fbo_flower.algorithms.records import Federation, Phase, Report, Task
from fbo_flower.algorithms.rfms import state as rfms
from fbo_flower.algorithms.rfms.site import digest
from fbo_flower.algorithms.rfms.state import Method, SiteReply, pooled_loss, shipped
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.seeding import generator


class SitesContract(AlgorithmContract):
    """The contract for sites: only the openbox is asked for trials, and the end looks at models once more."""

    reports_values = True
    smallest = 2
    largest = 1e11

    def test_who_comes_late_takes_part_and_who_is_away_stops_nobody(self):
        run = Run.begin(self.make(), num_agents=4).steps(2).step(present=())  # nobody has a role who is late
        assert {e.server_round for e in run.exchanges} == {1, 2}
        before = len(run.agents["0"].log)
        run.steps(self.num_rounds, present=["0", "2"])
        assert len(run.agents["0"].log) > before

    def test_finish_is_answered(self):
        run = self.played().fork()
        run.half(Phase.FINISH)
        finals = [e for e in run.exchanges if e.phase is Phase.FINISH]
        assert {e.agent for e in finals} == {"0", "1", "2"}
        assert all(np.isfinite(e.report.values["loss"]) for e in finals)

    def test_lost_reports_are_asked_for_again_and_nothing_is_done_twice(self, run=None):
        run = run or self.lossy()
        first, again = (e for e in run.exchanges if e.server_round < 3)
        assert (first.agent, again.agent) == ("0", "0")
        assert same(first.task.arrays, again.task.arrays)
        assert any(e.report is None for e in run.exchanges)
        for agent in run.agents.values():
            assert agent.num_evaluations == len(agent.log) == len(set(agent.log.trials.tolist()))
        told = [e.report.trial for e in run.exchanges if e.agent == "0" and e.report is not None]
        assert told == list(range(len(run.agents["0"].log)))
        for trial in range(len(run.state.trials) - 1):  # whatever a curator found out arrived in the end
            knows = {name for name in "123" if trial in run.agents[name].log.trials}
            assert set(run.state.replies.get(trial, {})) == knows - set(pending(run, trial))

    def test_agents_without_a_single_success_go_on(self):
        def objective(config, context):
            return hills(SQUARE)(config, context) if context.agent == "1" else np.nan

        algorithm = self.make()
        run = Run.begin(algorithm, objective=objective).steps(self.num_rounds)
        assert algorithm.best(run.agents["0"].agent_state) is None
        assert len(run.histories()["1"]) == 0, "nothing to judge"
        assert run.state.front() == []


def pending(run, trial):
    return [name for name, owed in run.state.owed.items() if trial in owed]


class TestFmo(SitesContract):
    def make(self):
        return RFMS(method="fmo", num_initial=2, num_trials=40)


@pytest.mark.parametrize("options", [{"method": "ehvi"}, {"method": "fso", "alpha": 0.2, "ship": "max"}])
def test_options_break_nothing_that_every_algorithm_keeps(options):
    check_variant(RFMS(num_initial=2, num_trials=40, **options), SitesContract)


def reply(said):
    """A reply with these `(J_i, n_i)`, or with this failure."""
    return SiteReply(np.nan, 0, said) if isinstance(said, str) else SiteReply(*said)


def state_of(losses):
    """A state whose trials have these `(J_l, {curator: (J_i, n_i) or failure})`."""
    points = np.linspace(0, 1, 2 * len(losses)).reshape(-1, 2)
    trials = tuple(
        rfms.ModelTrial(1, p, SiteReply(local, 50, "" if np.isfinite(local) else "failed"))
        for p, (local, _) in zip(points, losses, strict=True)
    )
    replies = {t: {a: reply(said) for a, said in row.items()} for t, (_, row) in enumerate(losses) if row}
    models = {t: np.array([t], dtype=np.uint8) for t in range(len(losses))}
    return rfms.RFMSState(SQUARE, "0", ("1", "2"), (), points[:0], trials, replies, models=models)


def test_remote_loss_is_the_mean_by_rows_over_those_who_answered():
    assert pooled_loss([SiteReply(0.1, 30), SiteReply(0.5, 10)]) == pytest.approx(0.2)
    assert pooled_loss([SiteReply(0.1, 30), SiteReply(np.nan, 0, "failed")]) == pytest.approx(0.1)
    state = state_of([(0.2, {"1": (0.1, 30), "2": (0.5, 10)}), (0.3, {"2": (0.5, 10)}), (0.4, {})])
    np.testing.assert_allclose(state.losses(), [[0.2, 0.2], [0.3, 0.5], [0.4, np.nan]])
    np.testing.assert_allclose(state.worst_losses(), [0.5, 0.5, np.nan])


def test_front_holds_no_dominated_failed_unknown_or_repeated_trial():
    losses = [(0.3, 0.1), (0.1, 0.3), (0.3, 0.1), (0.3, 0.3)]
    rows = [*((a, {"1": (b, 10)}) for a, b in losses), (0.05, {}), (np.nan, {}), (0.0, {"1": "refused: no"})]
    state = state_of(rows)
    assert state.front() == [0, 1]
    assert state.failed().tolist() == [False] * 5 + [True, True]


def test_a_trial_has_not_failed_when_one_curator_could_judge_it_or_all_withhold():
    refused, withheld = "refused: type", "withheld: the query budget of 3 answers is used up"
    state = state_of([(0.1, {"1": refused, "2": (0.2, 5)}), (0.1, {"1": refused}), (0.1, {"1": withheld})])
    assert state.failed().tolist() == [False, True, False]
    assert not state.exhausted()
    assert state_of([(0.1, {"1": withheld, "2": withheld})]).exhausted()


def test_failed_trials_count_as_the_worst_and_unknown_ones_not_at_all():
    state = state_of([(0.1, {"1": (0.4, 5)}), (np.nan, {}), (0.3, {"1": (0.2, 5)}), (0.2, {})])
    points, losses = Method("fmo", 0.5).observations(state)
    np.testing.assert_array_equal(losses, [[0.1, 0.4], [0.3, 0.4], [0.3, 0.2]])
    np.testing.assert_array_equal(points, state.points[[0, 1, 2]])
    _, alone = Method("lso", 0.5).observations(state)
    np.testing.assert_array_equal(alone[:, 0], [0.1, 0.3, 0.3, 0.2])


@pytest.mark.parametrize(
    ("method", "alpha", "ship", "expected"),
    [("lso", 0.5, "own", 0), ("fso", 0.2, "own", 3), ("fmo", 0.5, "own", 1), ("ehvi", 0.5, "mean", 1),
     ("lso", 0.5, "max", 2)],
)  # fmt: skip
def test_what_is_shipped_minimises_its_criterion(method, alpha, ship, expected):
    losses = [(0.1, 0.9, 0.9), (0.2, 0.25, 0.31), (0.29, 0.28, 0.28), (0.5, 0.11, 0.11)]
    rows = [(a, {"1": (b, 10), "2": (c, 10)}) for a, b, c in losses]
    state = state_of([*rows, (0.01, {"1": "refused: x"})])
    assert shipped(state, ship, Method(method, alpha)) == expected
    assert shipped(state_of([(np.nan, {})]), ship, Method(method, alpha)) is None


@pytest.mark.parametrize(
    ("roles", "match"),
    [
        ("openbox openbox curator", r"exactly one openbox, got agents \['0', '1'\]"),
        ("openbox lockbox lockbox", "at least one curator"),
        ("openbox curator", "agent 2: expected one of openbox, curator, lockbox, got ''"),
        ("openbox curator judge", "got 'judge'"),
    ],
)
def test_roles_that_do_not_fit_are_refused_before_anything_is_asked(roles, match):
    given = dict(zip("012", roles.split(), strict=False))
    with pytest.raises(ConfigError, match=match):
        RFMS().init(Federation(SQUARE, ("0", "1", "2"), given), generator(0, "init"))


# -- who answers, and what ---------------------------------------------------------------------------


def begin(**options):
    return Run.begin(RFMS(**{"num_initial": 3, "num_trials": 20, "method": "rand_mo", **options}))


def test_late_answers_come_with_the_next_reply_and_enter_the_buffer():
    run = begin().step().step(lost=("1",)).step(lost=("1",))
    assert run.state.owed == {"1": (1, 2)}
    assert {1, 2} <= set(run.state.models), "an answer may still make them worth keeping"
    before = run.state.losses()
    run.step()
    assert run.state.owed == {}
    late = json.loads(run.exchanges[-2].report.values["late"])
    assert [row[0] for row in late] == [1, 2]
    for trial, loss, num_rows in late:
        history = run.agents["1"].log
        assert loss == -history.values[history.trials == trial][0]
        assert run.state.replies[trial]["1"] == SiteReply(loss, num_rows)
    assert (run.state.losses()[1:3, 1] != before[1:3, 1]).all()
    best = shipped(run.state, "own", Method("rand_mo", 0.5))
    assert set(run.state.models) == {*run.state.front(), best}


def test_an_openbox_that_never_answers_costs_its_trial_after_some_attempts():
    run = begin(attempts=3).steps(3, lost=("0",))
    (trial,) = run.state.trials
    assert trial.local.failure == "the openbox did not answer 3 times"
    assert len(run.step().state.trials) == 2
    assert run.agents["0"].num_evaluations == 2, "the first configuration was trained once"


def test_without_curators_the_openbox_waits_and_the_model_is_judged_when_they_return():
    run = begin().step()
    run.step(present=("0",)).step(present=("0",))
    assert len(run.state.trials) == 2, "no third configuration"
    assert run.state.unjudged == 1
    run.step()
    assert run.state.unjudged is None
    assert set(run.state.replies[1]) == {"1", "2"}


def test_the_end_asks_everybody_for_every_kept_model_once_and_again_who_was_silent():
    run = Run.begin(RFMS(method="rand_mo", num_initial=3, num_trials=8), num_agents=3).steps(8)
    for number in range(20):
        run.server_round += 1
        run.half(Phase.FINISH, lost=("2",) if number == 0 else ())
    kept, best = run.state.final, shipped(run.state, "own", Method("rand_mo", 0.5))
    assert set(kept) == set(run.state.front()) | {best}
    found = run.algorithm.results(run.state).recommendations  # the shipped point, and minus its own losses
    replies = {"0": run.state.trials[best].local, **run.state.replies[best]}
    assert {agent: one.value for agent, one in found.items()} == {a: -r.loss for a, r in replies.items()}
    assert all((one.point == run.state.trials[best].point).all() for one in found.values())
    assert {t: set(a) for t, a in run.state.final_replies.items()} == {t: {"0", "1", "2"} for t in kept}
    asked = [(e.task.trial, e.agent) for e in run.exchanges if e.phase is Phase.FINISH]
    assert len(asked) == 3 * len(kept) + 1
    assert asked[-1] == (kept[0], "2")


def report(trial=0, failed=0, model=True, **values):
    arrays = {"model": np.ones(3, dtype=np.uint8)} if model else {}
    return Report(trial, 1, failed, arrays, {"loss": 0.5, "num_rows": 10, **values})


TRAIN = Task(Phase.TRAIN, 1, 4, 1)
EVALUATE = Task(Phase.EVALUATE, 1, 4, 1, {}, {"owed": "1,3"})


@pytest.mark.parametrize(
    ("task", "said", "match"),
    [
        (TRAIN, report(model=False), "model"),
        (TRAIN, replace(report(), arrays={"model": np.ones(0, dtype=np.uint8)}), "model"),
        (EVALUATE, report(), "model"),
        *((EVALUATE, report(model=False, num_rows=number), "num_rows") for number in (0, 10**12)),
        (EVALUATE, report(model=False, loss=1e300), "loss"),
        (EVALUATE, report(model=False, failed=1), "failure"),
        (EVALUATE, Report(0, 1, 0, {}, {"failure": "failed"}), "failure"),
        (EVALUATE, Report(0, 1, 1, {}, {"failure": "x" * 301}), "failure"),
        (EVALUATE, Report(0, 1, 1, {}, {"failure": "failed", "loss": 0.1}), "failure"),
        (EVALUATE, Report(0, 1, 0), "loss"),
        *((EVALUATE, report(model=False, late=text), "late") for text in (
            "[[2,0.5,10]]", "[[1,0.5,10],[1,0.6,10]]", "[[1,NaN,10]]", '[[1,"0.5",10]]', "[[true,0.5,10]]",
            "[" * 2000, "5",
        )),
    ],
)  # fmt: skip
def test_answers_that_are_none_are_refused(task, said, match):
    with pytest.raises(WireError, match=match):
        RFMS().check_report(task, said)


def last_task(models, number, manifest=None):
    manifest = np.array([digest(m) for m in models]) if manifest is None else manifest
    return Task(Phase.FINISH, 9, number, 0, {"model": models[number], "manifest": manifest})


MODELS = [np.full(4, k, dtype=np.uint8) for k in range(3)]


def test_the_first_task_of_the_end_fixes_what_may_be_judged_and_an_openbox_judges_its_own_models():
    run = begin(num_trials=4)
    lockbox, algorithm = run.agents["2"], run.algorithm
    for task in (last_task(MODELS, 0), last_task(MODELS, 0), last_task(MODELS, 2)):
        query = step(algorithm.propose, task, lockbox.agent_state, generator(0))
        if query is not None:
            outcome = lockbox.evaluate(query, 0, task)
            lockbox.agent_state = step(algorithm.learn, task, lockbox.agent_state, outcome, generator(0))
    assert lockbox.num_evaluations == 2, "a model is judged once"
    others = [*MODELS[:2], np.full(4, 9, dtype=np.uint8)]
    manifest = np.array([digest(m) for m in MODELS])
    arrays = {"point": np.full((1, 2), 0.5), "model": MODELS[0]}
    for agent, task, match in (
        (lockbox, last_task(others, 2), "manifest"),
        (lockbox, last_task(others, 2, manifest), "one of the manifest"),
        (lockbox, Task(Phase.TRAIN, 9, 5, 1, arrays), "fixed already"),
        (lockbox, Task(Phase.EVALUATE, 9, 5, 1, arrays), "fixed already"),
        (begin().steps(2).agents["0"], last_task(MODELS, 0), "that this site has made"),  # the openbox
    ):
        with pytest.raises(WireError, match=match):
            step(algorithm.propose, task, agent.agent_state, generator(0))
