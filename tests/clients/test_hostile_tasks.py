"""What a hostile server can make an agent or a site do: stay inside its space and its role, not for ever."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from agents import node, packed
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from fbo_flower.algorithms import ALGORITHMS, make_algorithm
from fbo_flower.algorithms.records import Phase, Task
from fbo_flower.algorithms.rfms.site import digest
from fbo_flower.clients.agent import TuningAgent
from fbo_flower.clients.guards import task_schema
from fbo_flower.clients.model_site import SiteOptions
from fbo_flower.clients.site import Shipment
from fbo_flower.clients.site_agent import SiteAgent
from fbo_flower.errors import WireError
from fbo_flower.space import Categorical, Float, Int, SearchSpace
from fbo_flower.wire.flower_records import to_lists

SPACE = SearchSpace(
    {
        "C": Float(1e-3, 1e3, log=True),
        "kernel": Categorical(["rbf", "poly"]),
        "degree": Int(2, 5, active_when={"kernel": "poly"}),
    }
)
SMALL = {
    "fts": {"num_features": 5, "num_candidates": 16, "num_path_features": 8},
    "ts": {"num_candidates": 16, "num_path_features": 8},
    "co-kg": {"num_points": 20, "num_initial": 3},
    "fn-ucb": {"budget": 20},
    "fed1-ucb": {"budget": 20},
}
BUDGET = {name: {"budget": 20} for name in ("pf-pne", "fed-pne", "local-pne", "hct")}
ALONE = {n: SMALL.get(n, BUDGET.get(n, {})) for n, kind in sorted(ALGORITHMS.items()) if not kind.roles}
SECURE = {"fed-pne": BUDGET["fed-pne"], "dp-fts": {}, "co-kg": SMALL["co-kg"]}
CASES = [
    *((name, options) for name, options in ALONE.items()),
    *((name, {**options, "secure_sums": 2}) for name, options in SECURE.items()),
    *((name, {**SMALL.get(name, {}), "trials_per_round": 3}) for name in ("fts", "dp-fts")),
]


def inside(config):
    """Whether a configuration is one of `SPACE`, said without its code."""
    degree = config.get("degree")
    return (
        1e-3 <= config["C"] <= 1e3 * (1 + 1e-12)
        and config["kernel"] in {"rbf", "poly"}
        and (degree is None) == (config["kernel"] == "rbf")
        and (degree is None or (type(degree) is int and 2 <= degree <= 5))
    )


def sent(name, options, task):
    return packed(make_algorithm(name, options), task, space=SPACE.digest)


def array_of(draw, spec, length):
    shape = [min(spec.max_length, length) if n is None else n for n in spec.shape]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    low, high = max(spec.low, -1e12), min(spec.high, 1e12)
    power = draw(st.sampled_from([0.0, 1.0, 8.0, None, None]))
    if spec.dtype == "uint8":
        return rng.integers(0, 256, shape).astype(np.uint8)
    if power is not None:
        drawn = low + (high - low) * rng.random(shape) ** power
    elif len(shape) == 1 and shape[0] < 5:  # nearly plausible
        drawn = np.sort(rng.choice(5, shape, replace=False))
    else:
        drawn = rng.random(shape)
    return np.clip(drawn, low, high).astype(spec.dtype)


VALUES = {
    bool: st.booleans(), int: st.integers(-3, 12), float: st.floats(-1e9, 1e9), str: st.text(max_size=5),
}  # fmt: skip


@st.composite
def tasks(draw, name, options):
    schema = task_schema(make_algorithm(name, options), SPACE)
    length, there = draw(st.integers(0, 4)), draw(st.sampled_from([st.booleans(), st.just(True)]))
    # nothing of a secure sum: random keys are refused before anything else
    plain = "secure.sum" in schema.values and draw(st.sampled_from([True, True, False]))
    kept = {n: spec for n, spec in schema.arrays.items() if "shared" not in n or draw(st.booleans())}
    arrays = {n: array_of(draw, spec, length) for n, spec in kept.items() if draw(there)}
    values = {n: draw(VALUES[kind]) for n, kind in schema.values.items() if draw(there)}
    if plain:
        arrays, values = ({n: v for n, v in named.items() if "secure" not in n} for named in (arrays, values))
    phase = draw(st.sampled_from([Phase.TRAIN, Phase.TRAIN, *Phase]))  # the one in which most is evaluated
    num_trials = draw(st.sampled_from([1, 3, *range(6)]))
    return Task(phase, draw(st.integers(0, 9)), 0, num_trials, arrays, values)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_whatever_a_task_says_the_agent_stays_inside_its_search_space(name, options):
    asked, evaluated = 0, 0

    @settings(max_examples=examples(300, 40) if "secure_sums" in options else 30)
    @given(tasks(name, options))
    def hostile(task):
        nonlocal asked, evaluated
        configs = []
        asked += 1
        # whatever it raises, Flower answers with an error and nobody else is touched
        with np.errstate(all="ignore"), suppress(Exception):
            agent = TuningAgent(
                lambda config, context: configs.append(config) or float(np.log10(config["C"])),
                SPACE, node(), seed=7, disclose="trials",
            )  # fmt: skip
            agent.answer(sent(name, options, task))
        evaluated += len(configs)
        assert all(inside(config) for config in configs)
        assert len(configs) <= task.num_trials

    hostile()
    assert asked >= 30
    assert evaluated > 0 or name in {"fn-ucb", "fed1-ucb"}, "else this would prove nothing"


# -- sites ---------------------------------------------------------------------------------------------

MODEL = np.arange(40, dtype=np.uint8)
POINT = np.full((1, SPACE.dimension), 0.5)
PHASES = {"openbox": Phase.TRAIN, "curator": Phase.EVALUATE, "lockbox": Phase.FINISH}


class GuardedSite:
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


def honest(role):
    """Return a task that is carried out."""
    arrays = {
        "openbox": {"point": POINT}, "curator": {"point": POINT, "model": MODEL},
        "lockbox": {"model": MODEL, "manifest": digest(MODEL)[None]},
    }[role]  # fmt: skip
    return Task(PHASES[role], 1, 0, int(role != "lockbox"), arrays)


def send(role, task, site):
    agent = SiteAgent(site, SiteOptions(), SPACE, node(role=role), seed=7)
    message = to_lists(sent("rfms", {}, task))
    (agent.evaluate if task.phase is Phase.EVALUATE else agent.fit)(*message)


@pytest.mark.parametrize("role", PHASES)
def test_a_site_refuses_a_task_without_a_part_or_of_another_shape_or_number(role):
    site, good = GuardedSite(), honest(role)
    wrong = [{k: v for k, v in good.arrays.items() if k != name} for name in good.arrays]
    wrong += [{**good.arrays, name: array[:, 1:]} for name, array in good.arrays.items() if array.ndim == 2]
    refused = [replace(good, arrays=arrays) for arrays in wrong]
    refused += [replace(good, num_trials=number) for number in (0, 2) if role != "lockbox"]
    for task in refused:
        with pytest.raises(WireError, match=r"point|model|manifest|one trial"):
            send(role, task, site)
    assert (site.configs, site.models) == ([], [])
    send(role, good, site)
    assert len(site.configs) + len(site.models) == 1


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
        site = GuardedSite()
        asked += 1
        with np.errstate(all="ignore"), suppress(Exception):  # Flower answers with an error
            send(role, task, site)
        assert all(inside(config) for config in site.configs)
        assert len(site.configs) + len(site.models) <= 1
        assert not (site.configs and role != "openbox")
        assert not (site.models and task.phase is not Phase.FINISH and role != "curator")
        trained, judged = trained + len(site.configs), judged + len(site.models)

    hostile()
    assert asked >= 100
    assert trained > 0 or role != "openbox", "else this would prove nothing"
    assert judged > 0 or role == "openbox", "else this would prove nothing"
