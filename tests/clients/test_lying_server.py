"""A server that asks the same question twice, under decoys, or with other options, learns nothing more.

Every attack is also played against an agent without memory (or with one that is wiped), where it succeeds.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from agents import SPACE, Objective, node, packed, task

from fbo_flower.algorithms import DPFTS, FTS, RandomSearch, make_algorithm
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.algorithms.rfms.rfms import RFMS
from fbo_flower.algorithms.rfms.site import digest
from fbo_flower.clients import TuningAgent
from fbo_flower.clients.site import Shipment, SiteOptions
from fbo_flower.clients.site_agent import SiteAgent
from fbo_flower.errors import ConfigError, FBOError, WireError
from fbo_flower.numerics.surrogates import rff

SMALL = {"num_features": 6, "num_candidates": 16, "num_path_features": 8}
LOCAL = DPFTS(noise="local", sampling_rate=1.0, **SMALL)
PLAIN = FTS(**SMALL)


def device(objective=None, seed=None, **node_config):
    return TuningAgent(objective or Objective(), SPACE, node(**node_config), seed=seed)


def message(algorithm, trial, num_trials=1, features=None, study="s", phase=Phase.TRAIN, **values):
    arrays = {}
    if features is not None:
        arrays = {"frequencies": features.frequencies, "phases": features.phases}
        values = {"message": True, **values}
    return packed(algorithm, task(trial, num_trials, phase, arrays=arrays, values=values), study=study)


def features(seed):
    return rff.draw_features(6, 0.5, 2, np.random.default_rng(seed))


def weights(agent, *messages):
    """The distinct noisy or drawn messages that an agent gave for some requests."""
    found = []
    for asked in messages:
        try:
            reply = agent.answer(asked)
        except FBOError:
            continue
        if "weights" in reply.arrays and not any(np.array_equal(reply.arrays["weights"], f) for f in found):
            found.append(reply.arrays["weights"])
    return found


# -- the same question twice -----------------------------------------------------------------------


def requests(algorithm):
    """The same trial three times: with other options, with other arrays, without trials."""
    other = make_algorithm(algorithm.name, {**algorithm.options(), "message_noise_variance": 0.5})
    return [
        message(algorithm, 0, 3, features(0)),
        message(other, 0, 3, features(0)),
        message(algorithm, 0, 3, features(1)),
        message(algorithm, 0, 2, features(2)),
        message(algorithm, 1, 1, features(3)),
        message(algorithm, 2, 1, features(4)),
    ]


@pytest.mark.parametrize("algorithm", [LOCAL, PLAIN], ids=["dp-fts", "fts"])
def test_a_trial_is_answered_once_whatever_comes_with_the_second_request(algorithm, tmp_path):
    asked, objective = requests(algorithm), Objective()
    agent = device(objective, journal=str(tmp_path / "a.db"))
    assert len(weights(agent, *asked)) == 1
    assert objective.calls == 3
    forgetful = (device(seed=4) for _ in count())
    control = [found for request in asked[:4] for found in weights(next(forgetful), request)]
    assert len({found.tobytes() for found in control}) == 4


@pytest.mark.parametrize("algorithm", [LOCAL, PLAIN], ids=["dp-fts", "fts"])
def test_the_agent_still_answers_after_its_process_was_restarted(algorithm, tmp_path):
    first, *others = requests(algorithm)
    own = {"journal": str(tmp_path / "a.db")}
    reply = device(**own).answer(first)
    for other in others:
        again = weights(device(**own), other)
        assert all(np.array_equal(found, reply.arrays["weights"]) for found in again)
    same = device(**own).answer(message(algorithm, 0, 3, features(0)))
    np.testing.assert_array_equal(same.arrays["weights"], reply.arrays["weights"])


def test_a_change_of_disclose_does_not_draw_the_noise_again(tmp_path):
    own, asked = {"journal": str(tmp_path / "a.db")}, message(LOCAL, 0, 3, features(0))
    first = device(**own).answer(asked)
    again = device(**own, disclose="incumbent").answer(asked)
    np.testing.assert_array_equal(again.arrays["weights"], first.arrays["weights"])


def test_reports_without_trials_are_one_of_a_kind(tmp_path):
    """A server that keeps asking for messages about the same observations gets the same one."""
    agent = device(journal=str(tmp_path / "a.db"))
    agent.answer(message(PLAIN, 0, 3))
    asked = [message(PLAIN, trial, 0, features(i)) for i, trial in enumerate((3, 3, 2, 1, 0))]
    assert len(weights(agent, *asked)) == 1
    phases = [message(PLAIN, 3, 0, features(i), phase=phase) for i, phase in enumerate(Phase, start=20)]
    assert len(weights(agent, asked[0], *phases)) == 1, "whatever phase the task names"
    agent.answer(message(PLAIN, 3, 1))
    after = weights(agent, message(PLAIN, 4, 0, features(9)), *asked)
    assert len(after) == 2, "one about the new observation, and the first answer again"


def test_noise_is_not_averaged_away_by_reports_without_trials(tmp_path):
    agent = device(journal=str(tmp_path / "a.db"))
    agent.answer(message(LOCAL, 0, 3))
    with pytest.raises(WireError, match="num-trials"):
        agent.answer(message(LOCAL, 3, 0, features(0)))


def test_the_options_of_a_study_are_pinned_at_its_first_task(tmp_path):
    agent = device(journal=str(tmp_path / "a.db"))
    agent.answer(message(LOCAL, 0, 3, features(0)))
    weaker = replace(LOCAL, noise_multiplier=0.001)
    for other in (weaker, replace(LOCAL, noise="central"), PLAIN, RandomSearch()):
        with pytest.raises(WireError, match="options: expected those of the study's first task"):
            agent.answer(message(other, 3))
    agent.answer(message(LOCAL, 3, 1, features(0)))
    agent.answer(message(weaker, 0, 3, features(0), study="another"))


# -- decoys ------------------------------------------------------------------------------------------


def test_a_decoy_does_not_make_an_agent_forget(tmp_path):
    objective = Objective()
    agent = device(objective, journal=str(tmp_path / "a.db"), max_trials=5)
    for i in range(200):
        weights(agent, message(RandomSearch(), 0, 1, study=f"decoy {i}"))
    assert objective.calls == 5


def test_an_operator_may_allow_one_study_only(tmp_path):
    objective = Objective()
    agent = device(objective, journal=str(tmp_path / "a.db"), max_studies=1)
    agent.answer(message(RandomSearch(), 0, 3, study="first"))
    with pytest.raises(WireError, match="study: expected at most 1"):
        agent.answer(message(RandomSearch(), 0, 3, study="second"))
    agent.answer(message(RandomSearch(), 3, study="first"))
    assert objective.calls == 4


@pytest.mark.parametrize(
    "limit", [{"max_trials": 5}, {"max_studies": 1}, {"max_epsilon": 1.0}, {"secure_sums": 3}]
)
def test_limits_without_a_journal_are_declined_at_start(limit):
    with pytest.raises(
        ConfigError, match="journal: expected a file in node_config, because " + next(iter(limit))
    ):
        device(**limit)
    device(seed=1, **limit)  # a simulated agent promises nothing


def test_protections_without_a_journal_are_declined():
    secured = make_algorithm("fed-pne", {"secure_sums": 3, "budget": 50})
    for algorithm in (LOCAL, secured):
        objective = Objective()
        with pytest.raises(ConfigError, match="journal"):
            device(objective).answer(message(algorithm, 0, 3, agents=3, depth=-1) if algorithm is secured
                                     else message(algorithm, 0, 3))  # fmt: skip
        assert objective.calls == 0
    with pytest.raises(ConfigError, match="journal"):
        device().get_properties({"key": True})
    assert device(objective).answer(message(PLAIN, 0, 3, features(0))).arrays


def test_rows_in_the_clear_are_declined_by_an_agent_that_discloses_nothing():
    objective = Objective()
    with pytest.raises(ConfigError, match="disclose: expected 'trials', because fed-ei"):
        device(objective).answer(message(make_algorithm("fed-ei", {"secure_sums": 0}), 0, 2))
    assert objective.calls == 0


# -- the lockbox -------------------------------------------------------------------------------------


class Site:
    is_rate = True

    def __init__(self) -> None:
        self.judged = 0

    def train(self, config, context):
        return Shipment(0.25, 80, np.arange(40, dtype=np.uint8))

    def judge(self, model, rows, context):
        self.judged += 1
        return 0.5, 100


def site(role, judge, seed=None, **node_config):
    context = node(role=role, **node_config)
    return SiteAgent(judge, SiteOptions.read(context.node_config, {}), SPACE, context, seed=seed)


def last(models, number, study):
    manifest = np.array([digest(model) for model in models])
    given = {"model": models[number], "manifest": manifest}
    return packed(RFMS(), Task(Phase.FINISH, 1, number, 0, given), study=study)


def models(seed, number=3):
    return list(np.random.default_rng(seed).integers(0, 256, (number, 40)).astype(np.uint8))


@pytest.mark.parametrize("allowed", [1, 2])
def test_a_lockbox_opens_once_in_its_life_unless_its_operator_allows_more(tmp_path, allowed):
    judge = Site()
    own = {"journal": str(tmp_path / "a.db"), "lockbox_answers": allowed}
    for study in range(5):
        for number in range(3):
            site("lockbox", judge, **own).answer(last(models(study), number, f"study {study}"))
    assert judge.judged == 3 * allowed
    again = site("lockbox", judge, **own).answer(last(models(4), 0, "study 4"))
    assert "failed" in str(again.config)
    forgetful = Site()
    for study in range(5):
        site("lockbox", forgetful, seed=1).answer(last(models(study), 0, f"study {study}"))
    assert forgetful.judged == 5


def test_the_same_models_under_another_study_are_another_list(tmp_path):
    """With noise, answers to the same list in many studies could be averaged."""
    judge, own = Site(), {"journal": str(tmp_path / "a.db"), "answer_noise_epsilon": 1.0}
    for study in range(3):
        site("lockbox", judge, **own).answer(last(models(0), 0, f"study {study}"))
    assert judge.judged == 1


def test_questions_are_finite_by_default(tmp_path):
    judge = Site()
    curator = site("curator", judge, journal=str(tmp_path / "a.db"))
    arrays = {"point": np.full((1, 2), 0.5), "model": np.arange(40, dtype=np.uint8)}
    for trial in range(220):
        curator.answer(packed(RFMS(), Task(Phase.EVALUATE, 1, trial, 1, arrays)))
    assert judge.judged == SiteOptions().query_budget == 200


def test_sites_that_must_remember_do_not_start_without_a_journal():
    for role in ("lockbox", "curator"):
        with pytest.raises(ConfigError, match="journal: expected a file in node_config"):
            site(role, Site())
    site("curator", Site(), query_budget=0)
    site("openbox", Site())
