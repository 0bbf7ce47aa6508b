"""Gossip finds hills, and its record fits its messages."""

from own_algorithm.gossip import Gossip
from own_algorithm.record import RECORD

from fbo_flower import Float, SearchSpace, simulate
from fbo_flower.algorithms.messages import report_schema


def test_the_record_describes_what_is_sent():
    schema = report_schema(Gossip(), SearchSpace({"x": Float(0.0, 1.0)}))
    assert RECORD.load() is Gossip
    assert set(RECORD.meanings) == {*schema.arrays, *schema.values}


def test_it_finds_better_points_than_random_search():
    regret = {}
    for name in ("gossip", "random"):
        study = simulate("himmelblau", agents=5, algorithm=name, num_rounds=40, engine="inline")
        last = study.regret["evaluations"] == study.regret["evaluations"].max()
        regret[name] = study.regret["simple"][last].mean()
    assert regret["gossip"] < 0.8 * regret["random"]
