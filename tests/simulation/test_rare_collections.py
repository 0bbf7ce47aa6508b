"""Garbage is collected rarely during a simulation, and as before after it."""

from __future__ import annotations

import contextlib
import gc
import weakref

from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

from fbo_flower.simulation import rare_collections as rare
from fbo_flower.simulation.grids import InProcessGrid, answer_all


def test_the_collector_is_as_before_afterwards() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    with contextlib.suppress(RuntimeError), rare.rare_collections():
        assert gc.get_threshold() == rare.THRESHOLDS
        assert gc.get_freeze_count() > 0
        raise RuntimeError("planted")
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


def test_a_collector_that_is_turned_off_is_left_alone() -> None:
    before = gc.get_threshold()
    gc.disable()
    try:
        with rare.rare_collections():
            assert gc.get_threshold() == before
            assert gc.get_freeze_count() == 0
    finally:
        gc.enable()


def test_cycles_of_a_long_batch_are_collected_after_it(monkeypatch) -> None:
    class Large:
        pass

    made: list[weakref.ref] = []
    app = ClientApp()

    @app.train()
    def train(message, context):
        large = Large()
        large.itself = large
        made.append(weakref.ref(large))
        return Message(RecordDict(), reply_to=message)

    grid = InProcessGrid(app, 1)
    (node,) = grid.get_node_ids()
    batch = [(grid.create_message(RecordDict(), "train", node, "1"), grid.contexts[node])]
    with rare.rare_collections():
        answer_all(app, batch)
        assert made[0]() is not None
        monkeypatch.setattr(rare, "LONG_SECONDS", -1.0)
        answer_all(app, batch)
        assert [reference() for reference in made] == [None, None]
