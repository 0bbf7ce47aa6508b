"""Ctrl-C ends a run even where Python loses the KeyboardInterrupt that the signal raises.

Python raises KeyboardInterrupt between two steps of the main thread, whatever runs there. An objective, or a
library below it, may catch it or turn it into another error, which looks like a failed evaluation. In the
callback of a weak reference, and where a generator is closed because nobody needs it any more, Python prints
the exception and goes on. So the signal also sets the event that every wait of a run looks at.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from fbo_flower.strategies.exchange import Stopped


@contextmanager
def interruptible(stop: threading.Event) -> Iterator[None]:
    """Set `stop` when Ctrl-C is pressed, and then do what the signal did before.

    Nothing is done outside the main thread, to which alone Python delivers signals, and where the signal is
    ignored or left to the system.

    Raises
    ------
    KeyboardInterrupt
        If the run found `stop` set by Ctrl-C.
    """
    interrupted = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        interrupted.set()
        stop.set()
        before(signum, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    except Stopped:
        if interrupted.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
