"""A site holds to its role, its budget and its noise, whatever the server asks."""

import json
import re

import numpy as np
import pytest
from agents import SPACE, node, packed

from fbo_flower.algorithms import RFMS, RandomSearch
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.algorithms.rfms.site import digest
from fbo_flower.clients import TuningAgent
from fbo_flower.clients.memory import StateMemory
from fbo_flower.clients.model_site import SiteOptions
from fbo_flower.clients.site import Shipment
from fbo_flower.clients.site_agent import SiteAgent, noisy_rate
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.wire.flower_records import to_lists

MODEL = np.arange(40, dtype=np.uint8)
PATIENT = "Jane Doe, 63"


class Site:
    """Notes what it is asked for; raises `error`, if there is one."""

    def __init__(self, is_rate=True, carries=(), error=None):
        self.is_rate, self.carries, self.error = is_rate, carries, error
        self.judged, self.trained = [], []

    def train(self, config, context):
        self.trained.append(context.trial)
        if self.error is not None:
            raise self.error
        return Shipment(0.25, 80, MODEL, self.carries)

    def judge(self, model, rows, context):
        self.judged.append((context.trial, rows))
        if self.error is not None:
            raise self.error
        return 0.5, {"inbag": 80, "outbag": 20, "all": 100}[rows]


each_role = pytest.mark.parametrize(
    ("role", "phase"), [("openbox", Phase.TRAIN), ("curator", Phase.EVALUATE), ("lockbox", Phase.FINISH)]
)
BOOM = ValueError(f"could not convert {PATIENT}")
REFUSED = WireError("model: of an unknown type")


def agent(role, site=None, context=None, disclose="none", seed=4, **config):
    context = context or node(role=role, **config)
    options = SiteOptions.read(context.node_config, {})
    return SiteAgent(site or Site(), options, SPACE, context, seed=seed, disclose=disclose)


def task(phase, trial=0, study="s", manifest=None, owed=""):
    arrays = {} if phase is Phase.FINISH else {"point": np.full((1, 2), 0.5)}
    if phase is not Phase.TRAIN:
        arrays["model"] = MODEL
    if phase is Phase.FINISH:
        arrays["manifest"] = np.array([digest(MODEL)]) if manifest is None else manifest
    asked = Task(phase, 1, trial, int(phase is not Phase.FINISH), arrays, {"owed": owed} if owed else {})
    return to_lists(packed(RFMS(), asked, study=study))


def ask(agent, phase, trial=0, **changes):
    """Return the arrays of an answer, its scalars, and the values among them."""
    message = task(phase, trial, **changes)
    if phase is Phase.EVALUATE:
        arrays, scalars = [], agent.evaluate(*message)[2]
    else:
        arrays, _, scalars = agent.fit(*message)
    return [a.tolist() for a in arrays], scalars, json.loads(scalars["values"])


# -- roles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "allowed", "judged"),
    [
        ("openbox", {"train", "finish"}, ["outbag"]),
        ("curator", {"evaluate", "finish"}, ["inbag", "outbag"]),
        ("lockbox", {"finish"}, ["all"]),
    ],
)
def test_a_site_refuses_what_does_not_fit_its_role_and_looks_only_at_its_rows(role, allowed, judged):
    site = Site()
    one = agent(role, site)
    for phase in sorted(Phase, key=lambda phase: phase is Phase.FINISH):  # an openbox judges what it has made
        if phase.value in allowed:
            ask(one, phase)
        else:
            with pytest.raises(WireError, match="phase"):
                ask(agent(role, site), phase)
    if role == "openbox":
        with pytest.raises(WireError, match="made none"):
            ask(agent(role, site), Phase.FINISH)
    assert [rows for _, rows in site.judged] == judged
    assert site.trained == ([0] if role == "openbox" else [])


def test_sites_and_agents_with_objectives_do_not_take_each_others_tasks():
    simple = to_lists(packed(RandomSearch(), Task(Phase.TRAIN, 1, 0, 1)))
    with pytest.raises(ConfigError, match="sites with roles, such as rfms, got random"):
        agent("openbox").fit(*simple)
    tuner = TuningAgent(lambda config, context: 0.0, SPACE, node(role="openbox"), seed=1)
    with pytest.raises(ConfigError, match="rfms expects sites"):
        tuner.fit(*task(Phase.TRAIN))


# -- what is told ----------------------------------------------------------------------------------


@each_role
def test_a_task_that_comes_again_is_not_done_again(role, phase):
    site = Site()
    one = agent(role, site)
    first = ask(one, phase, 7)
    assert ask(one, phase, 7) == first
    assert len(site.trained) + len(site.judged) == 1
    if role == "openbox":  # the model leaves with its loss and number of rows alone
        assert (first[0], first[2]) == ([MODEL.tolist()], {"loss": 0.25, "num_rows": 80})
    if role == "lockbox":
        with pytest.raises(WireError, match="manifest"):
            ask(one, phase, trial=1, manifest=np.array([digest(MODEL), digest(MODEL[1:])]))


@each_role
def test_an_error_that_may_quote_the_data_stays_at_home_and_a_refusal_says_why(role, phase):
    arrays, scalars, said = ask(agent(role, Site(error=BOOM)), phase)
    assert said == {"failure": "failed"}
    assert PATIENT not in str((arrays, scalars))
    _, scalars, said = ask(agent(role, Site(error=REFUSED)), phase)
    told = "failed" if role == "lockbox" else "refused: model: of an unknown type"
    assert said == {"failure": told}
    assert scalars["num-failed"] == int(role != "lockbox")


# -- what the operator allows ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("carries", "refusing", "allowing", "reason"),
    [
        ([".support_vectors_"], {}, {"allow_models_with_data": True}, "support_vectors_; .*allow_models"),
        ([], {"max_model_bytes": 39}, {"max_model_bytes": 40}, "40 bytes"),
    ],
)
def test_models_that_carry_rows_or_are_too_large_stay_unless_the_operator_allows(
    carries, refusing, allowing, reason
):
    arrays, _, said = ask(agent("openbox", Site(carries=carries), **refusing), Phase.TRAIN)
    assert arrays == []
    assert re.search(reason, said["failure"])
    assert len(ask(agent("openbox", Site(carries=carries), **allowing), Phase.TRAIN)[0]) == 1


@pytest.mark.parametrize("error", [None, BOOM])
def test_budget_is_kept_by_the_site_over_studies_and_apart_for_search_and_end(error):
    """A model that fails costs budget too."""
    site, context = Site(error=error), node(role="curator", query_budget=2)
    for trial, study in ((0, "s1"), (1, "s1"), (0, "s2")):
        said = ask(agent("curator", site, context), Phase.EVALUATE, trial, study=study)[2]
    assert said == {"failure": "withheld: the query budget of 2 answers is used up"}
    assert len(site.judged) == 2
    ask(agent("curator", site, context), Phase.FINISH)
    assert StateMemory(context.state).note("account")["answers"] == {"inbag": 2, "outbag": 1}


def test_epsilon_adds_up_a_repeated_question_costs_nothing_and_owed_answers_come_with_the_next():
    context = node(role="curator", answer_noise_epsilon=0.5)
    curator = agent("curator", context=context)
    first = ask(curator, Phase.EVALUATE, 0)
    assert ask(curator, Phase.EVALUATE, 0) == first
    noisy = first[2]["loss"]
    assert (first[2]["epsilon"], noisy != 0.5) == (0.5, True)
    assert ask(curator, Phase.EVALUATE, 1)[2]["epsilon"] == 1.0
    late = ask(curator, Phase.EVALUATE, 5, owed="0,3,5,9")[2]["late"]
    assert late == f"[[0,{noisy!r},80]]", "what was sent before, not what was true"
    assert ask(curator, Phase.FINISH)[2]["epsilon"] == 0.5, "other rows"
    assert StateMemory(context.state).note("account")["epsilon"] == {"inbag": 1.5, "outbag": 0.5}


def test_noise_is_on_the_count_of_wrong_rows_at_the_scale_of_epsilon():
    integers = uniform_from(np.random.default_rng(0))
    rates = np.array([noisy_rate(0.5, 200, 0.5, integers) for _ in range(4000)])
    counts = np.round(rates * 200)
    np.testing.assert_array_equal(rates, counts / 200)  # no bit beyond the noisy count
    variance = 0.5 / np.sinh(0.25) ** 2  # of P(k) ~ exp(-0.5 |k|)
    assert np.mean((counts - 100) ** 2) == pytest.approx(variance, rel=0.1)
    assert max(noisy_rate(0.0, 2, 0.1, integers) for _ in range(50)) == 1.0


def test_noise_of_a_device_cannot_be_drawn_by_the_server(tmp_path):
    options = {"seed": None, "answer_noise_epsilon": 1.0}
    devices = [agent("curator", journal=str(tmp_path / f"{i}.db"), **options) for i in range(12)]
    losses = {ask(device, Phase.EVALUATE)[2]["loss"] for device in devices}
    assert len(losses) > 1, "twelve devices with the same data drew the same noise"


def test_unusable_options_of_an_operator_are_config_errors():
    with pytest.raises(ConfigError, match="openbox, curator, lockbox"):
        agent("judge")
    with pytest.raises(ConfigError, match="models: expected a string"):
        agent("curator", models=3)
    with pytest.raises(ConfigError, match="expected scorer='misclassification'"):
        agent("curator", Site(is_rate=False), answer_noise_epsilon=1.0)


def test_models_are_saved_at_the_openbox_alone_and_under_a_name_of_its_own(tmp_path):
    for role, phases in (("openbox", [Phase.TRAIN, Phase.FINISH]), ("curator", [Phase.FINISH])):
        one = agent(role, models=str(tmp_path / role))
        for phase in phases:
            ask(one, phase, study="../../evil")
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file == tmp_path / "openbox" / f"trial-000-{digest(MODEL).tobytes().hex()[:12]}.skops"
    assert file.read_bytes() == MODEL.tobytes()
    assert file.stat().st_mode & 0o077 == 0, "only its owner may read it"


# -- the lockbox -------------------------------------------------------------------------------------


def last(seed, number, study):
    """Return the last task about one of three models, which depend on the seed."""
    models = np.random.default_rng(seed).integers(0, 256, (3, 40)).astype(np.uint8)
    given = {"model": models[number], "manifest": np.array([digest(model) for model in models])}
    return packed(RFMS(), Task(Phase.FINISH, 1, number, 0, given), study=study)


@pytest.mark.parametrize("allowed", [1, 2])
def test_a_lockbox_opens_once_in_its_life_unless_its_operator_allows_more(tmp_path, allowed):
    judge, forgetful = Site(), Site()
    own = {"journal": str(tmp_path / "a.db"), "lockbox_answers": allowed, "seed": None}
    for study in range(4):
        for number in range(3):
            agent("lockbox", judge, **own).answer(last(study, number, f"study {study}"))
        agent("lockbox", forgetful).answer(last(study, 0, f"study {study}"))
    assert len(judge.judged) == 3 * allowed
    again = agent("lockbox", judge, **own).answer(last(3, 0, "study 3"))
    assert "failed" in str(again.config)
    assert len(forgetful.judged) == 4, "an agent without memory"


def test_the_same_models_under_another_study_are_another_list(tmp_path):
    """With noise, answers to the same list in many studies could be averaged."""
    judge, own = Site(), {"journal": str(tmp_path / "a.db"), "answer_noise_epsilon": 1.0, "seed": None}
    for study in range(3):
        agent("lockbox", judge, **own).answer(last(0, 0, f"study {study}"))
    assert len(judge.judged) == 1


def test_sites_that_must_remember_do_not_start_without_a_journal():
    for role in ("lockbox", "curator"):
        with pytest.raises(ConfigError, match="journal: expected a file in node_config"):
            agent(role, seed=None)
    agent("curator", seed=None, query_budget=0)
    agent("openbox", seed=None)
