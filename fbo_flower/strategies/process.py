"""What a run does to its process: Ctrl-C, the log lines of Flower, and the end with its SuperLink."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR, WARNING
from types import FrameType

import flwr
from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower.strategies.exchange import ForwardingGrid, Stopped

_SILENCE = 60.0  # seconds without an answer of the SuperLink, after which a run ends
_FLOWER = os.path.join(os.path.dirname(flwr.__file__), "")  # as in log records


@contextmanager
def interruptible(stop: threading.Event) -> Iterator[None]:
    """Set `stop` when Ctrl-C is pressed, and then do what the signal did before.

    Python raises KeyboardInterrupt between two steps of the main thread, whatever runs there. An objective,
    or a library below it, may catch it or turn it into another error, which looks like a failed evaluation.
    In the callback of a weak reference, and where a generator is closed because nobody needs it any more,
    Python prints the exception and goes on. So the signal also sets the event at which every wait looks.

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


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C, and other signals that Python handles, wait until the block has ended.

    For what takes seconds and must not be left half done: a cluster that starts or ends, files that are
    saved. Handlers that the block itself installs are removed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return
    came: list[int] = []
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {n: handler for n in numbers if callable(handler := signal.getsignal(n))}
    for number in before:
        signal.signal(number, lambda signum, frame: came.append(signum))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def warnings_of_flower() -> Iterator[None]:
    """Log only warnings and errors of Flower itself, and all other lines; colours in terminals only."""
    flower = logging.getLogger("flwr")

    def is_wanted(record: logging.LogRecord) -> bool:
        return record.levelno >= WARNING or not record.pathname.startswith(_FLOWER)

    colours = {handler: True for handler in flower.handlers if getattr(handler, "colored", False)}
    for handler in colours:
        handler.colored = getattr(handler, "stream", sys.stderr).isatty()  # type: ignore[attr-defined]
    flower.addFilter(is_wanted)
    try:
        yield
    finally:
        flower.removeFilter(is_wanted)
        for handler in colours:
            handler.colored = True  # type: ignore[attr-defined]


@contextmanager
def ending_with_its_superlink(grid: Grid) -> Iterator[Grid]:
    """Yield a grid whose run ends once the SuperLink has not answered for a minute.

    Flower's grid retries for ever. A SuperLink that comes back has marked the run as failed, but the run
    keeps its journal locked, so no new run can resume from it. This ends the run with SIGINT, as Flower does
    when the SuperLink refuses a run.
    """
    if type(grid).__name__ != "HttpGrid" or threading.current_thread() is not threading.main_thread():
        yield grid
        return
    timed, ended = ForwardingGrid(grid), threading.Event()

    def look() -> None:
        while not ended.wait(_SILENCE / 20):
            since = timed.since
            if since is not None and time.monotonic() - since > _SILENCE:
                text = "The SuperLink has not answered for %g s: this run ends; resume it from its journal"
                log(ERROR, text, _SILENCE)
                os.kill(os.getpid(), signal.SIGINT)
                return

    threading.Thread(target=look, name="superlink", daemon=True).start()
    try:
        yield timed
    finally:
        ended.set()
