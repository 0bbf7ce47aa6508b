"""What a hostile server can make a site do: train inside its space, judge one bounded model, or nothing."""

from contextlib import suppress

import agents
import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_hostile_tasks import SPACE, inside, sent, tasks

from fbo_flower import wire
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.algorithms.rfms.site import MAX_MODEL_BYTES, MAX_MODELS, digest
from fbo_flower.clients.model_site import ModelSite
from fbo_flower.clients.site import Bag, SiteData, SiteObjective
from fbo_flower.clients.site_agent import Shipment, SiteAgent
from fbo_flower.clients.site_options import SiteOptions
from fbo_flower.errors import WireError
from fbo_flower.wire.flower_records import to_lists

MODEL = np.arange(40, dtype=np.uint8)
POINT = np.full((1, SPACE.dimension), 0.5)
PHASES = {"openbox": Phase.TRAIN, "curator": Phase.EVALUATE, "lockbox": Phase.FINISH}


class Guarded:
    """A site that notes every configuration it trains and every model it judges."""

    is_rate = True

    def __init__(self):
        self.configs, self.models = [], []

    def train(self, config, context):
        self.configs.append(config)
        return Shipment(0.25, 80, MODEL)

    def judge(self, model, rows, context):
        self.models.append(model)
        return 0.5, 80


def node(role, site, **node_config):
    context = agents.node(role=role, **node_config)
    return SiteAgent(site, SiteOptions.read(context.node_config, {}), SPACE, context, seed=7)


def honest(role):
    arrays = {"point": POINT}
    if role != "openbox":
        arrays["model"] = MODEL
    if role == "lockbox":
        arrays = {"model": MODEL, "manifest": digest(MODEL)[None]}
    return Task(PHASES[role], 1, 0, int(role != "lockbox"), arrays)


def send(agent, task):
    message = to_lists(sent("rfms", {}, task))
    return agent.evaluate(*message) if task.phase is Phase.EVALUATE else agent.fit(*message)


def changed(role, num_trials=None, **arrays):
    task = honest(role)
    kept = {k: v for k, v in {**task.arrays, **arrays}.items() if v is not None}
    return Task(task.phase, 1, 0, task.num_trials if num_trials is None else num_trials, kept)


WRONG_POINTS = {
    "below the cube": np.array([[0.5, -1e-9, 0.5]]),
    "above the cube": np.array([[0.5, 1.0 + 1e-9, 0.5]]),
    "not a number": np.array([[0.5, np.nan, 0.5]]),
    "infinite": np.array([[0.5, np.inf, 0.5]]),
    "too narrow": np.full((1, 2), 0.5),
    "too wide": np.full((1, 4), 0.5),
    "two of them": np.full((2, 3), 0.5),
    "none of them": np.full((0, 3), 0.5),
    "flat": np.full(3, 0.5),
    "of another type": np.full((1, 3), 1, dtype=np.int64),
    "missing": None,
}
WRONG_MODELS = {
    "one byte too many": np.zeros(MAX_MODEL_BYTES + 1, dtype=np.uint8),
    "in rows": MODEL.reshape(4, 10),
    "of another type": MODEL.astype(np.float64),
    "missing": None,
}
WRONG_MANIFESTS = {
    "too narrow": digest(MODEL)[None, :31],
    "one digest too many": np.tile(digest(MODEL), (MAX_MODELS + 1, 1)),
    "of other models": digest(MODEL[1:])[None],
    "empty": np.zeros((0, 32), dtype=np.uint8),
    "missing": None,
}


@pytest.mark.parametrize("role", PHASES)
def test_an_honest_task_is_answered(role):
    site = Guarded()
    send(node(role, site), honest(role))
    assert len(site.configs) + len(site.models) == 1
    assert all(inside(config) for config in site.configs)


@pytest.mark.parametrize("kind", WRONG_POINTS)
@pytest.mark.parametrize("role", ["openbox", "curator"])
def test_a_configuration_that_is_none_of_the_space_is_refused(role, kind):
    site = Guarded()
    with pytest.raises(WireError, match="point"):
        send(node(role, site), changed(role, point=WRONG_POINTS[kind]))
    assert not site.configs
    assert not site.models


@pytest.mark.parametrize("kind", WRONG_MODELS)
@pytest.mark.parametrize("role", ["curator", "lockbox"])
def test_bytes_that_are_no_model_by_their_shape_or_size_are_refused(role, kind):
    site = Guarded()
    with pytest.raises(WireError, match="model"):
        send(node(role, site), changed(role, model=WRONG_MODELS[kind]))
    assert not site.models


@pytest.mark.parametrize("kind", WRONG_MANIFESTS)
def test_a_lockbox_judges_no_model_without_a_manifest_that_names_it(kind):
    site = Guarded()
    with pytest.raises(WireError, match=r"manifest"):
        send(node("lockbox", site), changed("lockbox", manifest=WRONG_MANIFESTS[kind]))
    assert not site.models


@pytest.mark.parametrize("num_trials", [0, 2, wire.MAX_TASK])
@pytest.mark.parametrize("role", ["openbox", "curator"])
def test_a_task_of_the_search_is_one_trial(role, num_trials):
    site = Guarded()
    with pytest.raises(WireError, match="one trial"):
        send(node(role, site), changed(role, num_trials))
    assert not site.configs
    assert not site.models


def test_a_model_over_the_operators_size_is_refused_before_it_is_read():
    rows = Bag(np.zeros((3, 2)), np.array([0, 1, 0]))
    objective = SiteObjective(lambda config: None, lambda context: SiteData(rows, rows))
    options = SiteOptions(max_model_bytes=39)
    agent = SiteAgent(ModelSite(objective, options), options, SPACE, agents.node(role="curator"), seed=7)
    answer = send(agent, honest("curator"))[2]
    assert "refused: model: expected 1 to 39 bytes, got 40" in answer["values"]


@st.composite
def nearly_honest(draw, role):
    """An honest task in which some parts are those of a random one; some of these are carried out."""
    good, wild = honest(role), draw(tasks("rfms", {}))
    mostly = st.sampled_from([good, good, good, wild])
    names = sorted({*good.arrays, *wild.arrays})
    arrays = {n: a for n in names if (a := draw(mostly).arrays.get(n)) is not None}
    return Task(draw(mostly).phase, wild.round, 0, draw(mostly).num_trials, arrays, wild.values)


@pytest.mark.parametrize("role", PHASES)
def test_whatever_a_task_says_a_site_keeps_to_its_space_and_its_role(role):
    asked, trained, judged = 0, 0, 0

    @settings(max_examples=examples(200, 100))
    @given(st.one_of(tasks("rfms", {}), nearly_honest(role)))
    def hostile(task):
        nonlocal asked, trained, judged
        site = Guarded()
        asked += 1
        with np.errstate(all="ignore"), suppress(Exception):  # Flower answers with an error
            send(node(role, site), task)
        assert all(inside(config) for config in site.configs)
        assert len(site.configs) + len(site.models) <= 1
        assert not (site.configs and role != "openbox")
        assert not (site.models and task.phase is not Phase.FINISH and role != "curator")
        trained, judged = trained + len(site.configs), judged + len(site.models)

    hostile()
    assert asked >= 100
    assert trained > 0 or role != "openbox", "else this would prove nothing"
    assert judged > 0 or role != "curator", "else this would prove nothing"
