"""A site holds to its role, its budget and its noise, whatever the server asks."""

import json

import numpy as np
import pytest
from agents import SPACE, node, packed
from scipy import stats

from fbo_flower.algorithms import RFMS, RandomSearch
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.algorithms.rfms.site import MAX_MODEL_BYTES, digest
from fbo_flower.clients import TuningAgent
from fbo_flower.clients.memory import StateMemory
from fbo_flower.clients.site import Shipment, SiteOptions
from fbo_flower.clients.site_agent import Account, SiteAgent, noisy_rate
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.wire.flower_records import to_lists

MODEL = np.arange(40, dtype=np.uint8)
PATIENT = "Jane Doe, 63"


class Site:
    """Counts what it is asked for."""

    def __init__(self, is_rate=True, carries=(), judge=None, train=None):
        self.is_rate, self.carries = is_rate, carries
        self.judged, self.trained = [], []
        self._judge, self._train = judge, train

    def train(self, config, context):
        self.trained.append(context.trial)
        if self._train is not None:
            self._train()
        return Shipment(0.25, 80, MODEL, self.carries)

    def judge(self, model, rows, context):
        self.judged.append((context.trial, rows))
        if self._judge is not None:
            self._judge()
        return 0.5, {"inbag": 80, "outbag": 20, "all": 100}[rows]


def agent(role, site=None, context=None, disclose="none", seed=4, **config):
    context = context or node(role=role, **config)
    site = site or Site()
    options = SiteOptions.read(context.node_config, {})
    return SiteAgent(site, options, SPACE, context, seed=seed, disclose=disclose)


def task(phase, trial=0, study="s", algorithm=None, model=MODEL, manifest=None, owed=""):
    arrays = {} if phase is Phase.FINISH else {"point": np.full((1, 2), 0.5)}
    if phase is not Phase.TRAIN:
        arrays["model"] = model
    if phase is Phase.FINISH:
        arrays["manifest"] = np.array([digest(MODEL)]) if manifest is None else manifest
    asked = Task(phase, 1, trial, int(phase is not Phase.FINISH), arrays, {"owed": owed} if owed else {})
    return to_lists(packed(algorithm or RFMS(), asked, study=study))


def ask(agent, phase, trial=0, **changes):
    message = task(phase, trial, **changes)
    if phase is Phase.EVALUATE:
        return [], agent.evaluate(*message)[2]
    arrays, _, scalars = agent.fit(*message)
    return arrays, scalars


def values(scalars):
    return json.loads(scalars["values"])


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
    assert [rows for _, rows in site.judged] == judged
    assert site.trained == ([0] if role == "openbox" else [])


def test_an_openbox_judges_no_model_that_it_has_not_made():
    site = Site()
    with pytest.raises(WireError, match="made none"):
        ask(agent("openbox", site), Phase.FINISH)
    assert not site.judged


@pytest.mark.parametrize("role", ["", "judge", "Openbox"])
def test_a_node_without_a_role_is_an_error_that_names_the_roles(role):
    with pytest.raises(ConfigError, match="openbox, curator, lockbox"):
        agent(role)


def test_sites_and_agents_with_objectives_do_not_take_each_others_tasks():
    simple = task(Phase.TRAIN, algorithm=RandomSearch())
    simple = ([], simple[1] | {"names": ""})
    with pytest.raises(ConfigError, match="sites with roles, such as rfms, got random"):
        agent("openbox").fit(*simple)
    tuner = TuningAgent(lambda config, context: 0.0, SPACE, node(role="openbox"), seed=1)
    with pytest.raises(ConfigError, match="rfms expects sites"):
        tuner.fit(*task(Phase.TRAIN))


def test_a_second_study_gets_a_memory_of_its_own_but_the_lockbox_answers_a_model_once():
    site = Site()
    lockbox = agent("lockbox", site)
    first = ask(lockbox, Phase.FINISH)
    assert ask(lockbox, Phase.FINISH) == first
    assert len(site.judged) == 1
    with pytest.raises(WireError, match="manifest"):
        ask(lockbox, Phase.FINISH, trial=1, manifest=np.array([digest(MODEL), digest(MODEL[1:])]))


# -- what is told ----------------------------------------------------------------------------------


def test_a_trained_model_leaves_with_its_loss_and_number_of_rows_alone():
    arrays, scalars = ask(agent("openbox"), Phase.TRAIN)
    (model,) = arrays
    np.testing.assert_array_equal(model, MODEL)
    assert values(scalars) == {"loss": 0.25, "num_rows": 80}


def test_a_task_that_comes_again_is_not_done_again():
    site = Site()
    opened = agent("openbox", site)
    first, again = (ask(opened, Phase.TRAIN, 7) for _ in range(2))
    np.testing.assert_array_equal(first[0][0], again[0][0])
    assert first[1] == again[1]
    assert site.trained == [7]
    curator = agent("curator", site)
    assert ask(curator, Phase.EVALUATE, 3) == ask(curator, Phase.EVALUATE, 3)
    assert [trial for trial, _ in site.judged] == [3]


def test_owed_answers_come_with_the_next():
    curator = agent("curator")
    ask(curator, Phase.EVALUATE, 1)
    ask(curator, Phase.EVALUATE, 2)
    _, scalars = ask(curator, Phase.EVALUATE, 5, owed="0,2,5,9")
    assert values(scalars)["late"] == "[[2,0.5,80]]"


@pytest.mark.parametrize("disclose", ["none", "incumbent", "trials"])
def test_disclosure_is_the_operators(disclose):
    _, scalars = ask(agent("openbox", disclose=disclose), Phase.TRAIN)
    assert ("disclosed.incumbent" in scalars) == (disclose != "none")
    assert ("disclosed.values" in scalars["names"]) == (disclose == "trials")
    _, scalars = ask(agent("curator", disclose=disclose), Phase.EVALUATE)
    assert ("disclosed.incumbent" in scalars) == (disclose != "none")


def boom():
    raise ValueError(f"could not convert {PATIENT}")


def refuse():
    raise WireError("model: of an unknown type")


def test_an_error_that_may_quote_the_data_stays_at_home():
    for asked, phase in (
        (agent("openbox", Site(train=boom)), Phase.TRAIN),
        (agent("curator", Site(judge=boom)), Phase.EVALUATE),
        (agent("lockbox", Site(judge=boom)), Phase.FINISH),
    ):
        arrays, scalars = ask(asked, phase)
        assert values(scalars) == {"failure": "failed"}
        assert PATIENT not in str((arrays, scalars))


def test_a_model_that_is_refused_costs_its_trial_and_says_why():
    curator = agent("curator", Site(judge=refuse))
    _, scalars = ask(curator, Phase.EVALUATE)
    assert values(scalars) == {"failure": "refused: model: of an unknown type"}
    assert scalars["num-failed"] == 1


# -- what the operator allows ------------------------------------------------------------------------


def test_models_that_carry_rows_stay_unless_the_operator_allows(caplog):
    site = Site(carries=(".support_vectors_",))
    arrays, scalars = ask(agent("openbox", site), Phase.TRAIN)
    assert arrays == []
    assert "support_vectors_" in values(scalars)["failure"]
    assert "allow_models_with_data" in values(scalars)["failure"]
    caplog.clear()
    arrays, scalars = ask(agent("openbox", site, allow_models_with_data=True), Phase.TRAIN)
    assert len(arrays) == 1
    assert "carries rows of this site's data" in caplog.text
    assert [record.levelname for record in caplog.records if "carries" in record.message] == ["WARNING"]


def test_a_model_over_the_operators_size_stays():
    arrays, scalars = ask(agent("openbox", max_model_bytes=39), Phase.TRAIN)
    assert arrays == []
    assert "40 bytes" in values(scalars)["failure"]
    assert len(ask(agent("openbox", max_model_bytes=40), Phase.TRAIN)[0]) == 1


def test_budget_is_kept_by_the_site_over_studies_and_apart_for_search_and_end():
    site, context = Site(), node(role="curator", query_budget=2)
    for trial, study in ((0, "s1"), (1, "s1"), (0, "s2")):
        _, scalars = ask(agent("curator", site, context), Phase.EVALUATE, trial, study=study)
    assert values(scalars) == {"failure": "withheld: the query budget of 2 answers is used up"}
    assert len(site.judged) == 2
    _, scalars = ask(agent("curator", site, context), Phase.FINISH)
    assert values(scalars)["loss"] == 0.5
    assert Account.read(StateMemory(context.state)).answers == {"inbag": 2, "outbag": 1}


def test_a_model_that_fails_costs_budget_too():
    site, context = Site(judge=boom), node(role="curator", query_budget=1)
    ask(agent("curator", site, context), Phase.EVALUATE)
    _, scalars = ask(agent("curator", site, context), Phase.EVALUATE, 1)
    assert "withheld" in values(scalars)["failure"]


def test_epsilon_adds_up_and_a_repeated_question_costs_nothing():
    context = node(role="curator", answer_noise_epsilon=0.5)
    curator = agent("curator", context=context)
    first = ask(curator, Phase.EVALUATE, 0)
    assert ask(curator, Phase.EVALUATE, 0) == first
    assert values(first[1])["epsilon"] == 0.5
    assert values(first[1])["loss"] != 0.5
    assert values(ask(curator, Phase.EVALUATE, 1)[1])["epsilon"] == 1.0
    noisy = values(first[1])["loss"]
    late = values(ask(curator, Phase.EVALUATE, 2, owed="0")[1])["late"]
    assert late == f"[[0,{noisy!r},80]]", "what was sent before, not what was true"
    assert values(ask(curator, Phase.FINISH)[1])["epsilon"] == 0.5, "other rows"
    assert Account.read(StateMemory(context.state)).epsilon == {"inbag": 1.5, "outbag": 0.5}


def test_noise_is_discrete_laplace_on_the_count_of_wrong_rows():
    integers = uniform_from(np.random.default_rng(0))
    rates = np.array([noisy_rate(0.5, 200, 0.5, integers) for _ in range(4000)])
    counts = np.round(rates * 200)
    np.testing.assert_array_equal(rates, counts / 200)  # no bit beyond the noisy count
    steps = np.arange(-20, 21)

    def p_value(epsilon):
        p = np.tanh(epsilon / 2) * np.exp(-epsilon * np.abs(steps))
        observed = np.array([np.sum(counts == 100 + k) for k in steps])
        rest = len(counts) - observed.sum()
        expected = np.append(p, 1 - p.sum()) * len(counts)
        return stats.chisquare(np.append(observed, rest), expected).pvalue

    assert p_value(0.5) > 1e-3
    assert p_value(0.4) < 1e-6
    clipped = [noisy_rate(0.0, 2, 0.1, integers) for _ in range(50)]
    assert min(clipped) == 0.0
    assert max(clipped) == 1.0


def test_noise_of_a_device_cannot_be_drawn_by_the_server(tmp_path):
    options = {"seed": None, "answer_noise_epsilon": 1.0}
    devices = [agent("curator", journal=str(tmp_path / f"{i}.db"), **options) for i in range(12)]
    losses = [values(ask(device, Phase.EVALUATE)[1])["loss"] for device in devices]
    assert len(set(losses)) > 1, "twelve devices with the same data drew the same noise"


def test_noise_needs_a_loss_of_known_sensitivity():
    with pytest.raises(ConfigError, match="misclassification"):
        agent("curator", Site(is_rate=False), answer_noise_epsilon=1.0)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"query_budget": -1}, "query_budget"),
        ({"query_budget": 1.5}, "query_budget"),
        ({"answer_noise_epsilon": -0.1}, "answer_noise_epsilon"),
        ({"allow_models_with_data": "yes"}, "allow_models_with_data"),
        ({"in_process": 1}, "in_process"),
        ({"max_model_bytes": MAX_MODEL_BYTES + 1}, "max_model_bytes"),
        ({"models": 3}, "models"),
        ({"model_seconds": 0}, "model_seconds"),
    ],
)
def test_unusable_options_of_an_operator_are_config_errors(options, match):
    with pytest.raises(ConfigError, match=match):
        agent("curator", **options)


def test_models_are_saved_at_the_openbox_alone_and_under_a_name_of_its_own(tmp_path):
    opened = agent("openbox", models=str(tmp_path))
    ask(opened, Phase.TRAIN, study="../../evil")
    ask(opened, Phase.FINISH, study="../../evil")
    ask(agent("curator", models=str(tmp_path / "c")), Phase.FINISH)
    (file,) = tmp_path.iterdir()
    assert file.name == f"trial-000-{digest(MODEL).tobytes().hex()[:12]}.skops"
    assert file.read_bytes() == MODEL.tobytes()
    assert file.stat().st_mode & 0o077 == 0, "only its owner may read it"
