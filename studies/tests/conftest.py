"""The settings and fixtures of the package's tests, `tests/helpers/suite.py`, and jobs without processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from suite import *  # noqa: F403

from studies import jobs  # adds the studies' problems and comparators before a helper lists them


class InThisProcess:
    """An executor that does the work when it is submitted; a new process would take seconds to begin."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*arguments))
        return done


@pytest.fixture(scope="session", autouse=True)
def _jobs_in_this_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "ProcessPoolExecutor", InThisProcess)
        yield
