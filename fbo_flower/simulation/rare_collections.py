"""Collect garbage rarely while thousands of agents are simulated.

Python looks for garbage cycles whenever 700 more objects exist than before. A round makes hundreds of objects
per agent and keeps most of them until it ends, so that nearly all of these searches find nothing: they took a
fifth of the time of the grid's process. Here a search begins after 50000 new objects. What existed before the
study, such as imported modules, is not searched at all.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (50_000, 10, 10)  # of `gc.set_threshold`
LONG_SECONDS = 0.1  # a batch that works so long may leave large objects behind


def collect_rarely() -> None:
    """Set this process to collect garbage rarely from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage rarely within this context; afterwards as before.

    A process that has turned its collector off, or has frozen objects itself, is left as it is.
    """
    if not gc.isenabled() or gc.get_freeze_count() or gc.get_threshold()[0] >= THRESHOLDS[0]:
        yield
        return
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def garbage_of_a_batch() -> Iterator[None]:
    """Collect young garbage after a batch that took long: objectives may leave large objects in cycles."""
    begin = time.thread_time()
    yield
    if time.thread_time() - begin > LONG_SECONDS and gc.get_threshold() == THRESHOLDS:
        gc.collect(1)
