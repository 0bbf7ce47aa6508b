"""Signals that end the command line: Ctrl-C, `kill`, and a terminal that closes.

A command begins with imports that take seconds. There a signal ends the process at once: an exception would
have to find its way through a library, which may swallow it or turn it into another error. A command that
writes files, or starts processes, does so in a block `in_order`. There the first signal raises
KeyboardInterrupt, and files are saved and processes end. If that takes long, also because the main thread is
in code that is not Python, another thread ends the process.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import socket

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_PATIENCE = 10.0  # seconds in which the process may end in order
NOTHING = "nothing was written"


class Interrupted(Exception):  # noqa: N818  # not an error: someone pressed Ctrl-C
    """A signal has come; the text says what has been written. (Typer would swallow a KeyboardInterrupt.)"""


class _Process:
    """What this process knows of signals."""

    guarded = False  # whether they are handled here
    number = 0  # the first signal that came; 0: none
    says: Callable[[], str] = staticmethod(lambda: NOTHING)


def guard() -> None:
    """Let a signal end this process at once, with one line; a signal that is ignored stays ignored.

    A signal that comes when the process has done everything, and Python ends, changes nothing.
    """
    if _Process.guarded:
        return
    _Process.guarded = True
    _handle_with(_end_at_once)
    atexit.register(_handle_with, signal.SIG_IGN)  # the last to run, as the first that is registered
    import socket
    import threading

    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)  # Python writes each signal's number
    threading.Thread(target=_end_in_time, args=(ours,), daemon=True).start()
    if hasattr(os, "register_at_fork"):  # Windows has none
        os.register_at_fork(after_in_child=_unguard)


def _unguard() -> None:
    """Handle signals in a forked process as Python does."""
    _Process.guarded = False
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _end_in_time(signals: socket.socket) -> None:
    while True:
        if (number := signals.recv(1)[0]) in _SIGNALS:
            time.sleep(_PATIENCE)
            _end_at_once(number)


@contextmanager
def in_order(says: Callable[[], str]) -> Iterator[None]:
    """Let a signal end the block in order.

    Parameters
    ----------
    says : returns what has been written and how to continue, as a sentence

    Raises
    ------
    Interrupted
        If a signal came, whatever has become of its KeyboardInterrupt.
    """
    _Process.says = staticmethod(says)
    _handle_with(_interrupt)
    try:
        yield
    except BaseException as error:
        if _Process.number or isinstance(error, KeyboardInterrupt):
            raise Interrupted(says()) from error
        raise
    finally:
        _handle_with(_end_at_once)
    if _Process.number:
        raise Interrupted(says())


def status() -> int:
    """Return the exit status after a signal; 130 after Ctrl-C."""
    return 128 + (_Process.number or signal.SIGINT)


def leave(exit_status: int) -> NoReturn:
    """End this process; after a signal without the libraries' own clean-up, which may hang or crash."""
    if _Process.number:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        _end_children()
        os._exit(exit_status)
    sys.exit(exit_status)


def _end_children() -> None:
    """End what Ray has started and not ended."""
    if psutil := sys.modules.get("psutil"):  # comes with Ray
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                process.kill()


def _handle_with(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    if _Process.guarded:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt at the first signal; others come while the process ends."""
    if _Process.number:
        return
    _Process.number = number
    handler = signal.getsignal(signal.SIGINT)  # a running study has its own, which stops it
    if number != signal.SIGINT and callable(handler):
        handler(signal.SIGINT, frame)
    raise KeyboardInterrupt


def _end_at_once(number: int, frame: FrameType | None = None) -> None:
    try:
        text = "".join(c if c.isprintable() else "?" for c in _Process.says())
    except Exception:  # it was interrupted itself
        text = "look at the files that it has written"
    os.write(2, f"interrupted; {text}\n".encode(errors="replace"))
    _end_children()
    os._exit(128 + (_Process.number or number))
