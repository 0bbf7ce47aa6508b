"""Waiting for events. A limit only ends a test whose event will never come; no test is decided by it."""

import time

LIMIT = 300.0  # seconds, many times what a slow and busy machine needs
LATE = 1e9  # of a planted fault "slow": its reply is under way and never comes


def wait_until(condition, what, seconds=LIMIT):
    """Return when `condition()` is true; raise TimeoutError, naming `what`, if it never is."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {what} within {seconds:g} s")
        time.sleep(0.01)


class Clock:
    """A clock that moves when it is told to: seconds that a test need not wait."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def monotonic(self):
        """Return the time, as the function of the module `time` that this object stands for."""
        return self.now

    thread_time = monotonic

    def sleep(self, seconds):
        """Let the time pass at once."""
        self.now += seconds
