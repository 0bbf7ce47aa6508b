"""Settings, hooks and fixtures of all tests: those of the package and those of the studies."""

import logging
import os
import signal

# several processes run tests: with a thread per core each, BLAS spends most of its time waiting. Before numpy
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read once, when flwr is imported
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

import amounts
import pytest
from flower_runtime import _ray_stack, flwr_run, ray_cluster  # fixtures for all tests
from hypothesis import settings

from fbo_flower.algorithms import registry

# the machine may be busy with other work, and a failure must repeat
settings.register_profile("fbo-flower", deadline=None, derandomize=True)
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=40)


def pytest_configure(config):
    """Repeat less if the slow tests are left out; here, before any test is imported.

    A shell lets what runs in its background ignore Ctrl-C, and children inherit that; the tests press it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    amounts.THOROUGH = "not slow" not in config.option.markexpr
    settings.load_profile("fbo-flower" if amounts.THOROUGH else "quick")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Give all tests that share one SuperLink, or one Ray, to one process of pytest-xdist."""
    for item in items:
        for fixture in ("flwr_run", "ray_cluster"):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(fixture))


@pytest.fixture(autouse=True)
def flowers_log_level():
    """Restore the level of Flower's logger, which commands and experiments raise for their process."""
    logger = logging.getLogger("flwr")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.fixture(autouse=True)
def devices(monkeypatch):
    """Agents of this process are devices, also after a test that ran Flower's simulation in it."""
    monkeypatch.setattr("fbo_flower.clients.agent.in_simulation", lambda: False)


@pytest.fixture(autouse=True)
def registered_before(monkeypatch):
    """Forget the classes that a test registers, by running a study for one."""
    monkeypatch.setattr(registry, "_LOCAL", dict(registry._LOCAL))


@pytest.fixture
def unpictured(monkeypatch):
    """Write empty pictures, because drawing takes longer than a small study."""
    from fbo_flower.reports.figures import traffic_path

    def draw(study, path, x="evaluations", *, wide=None):
        for picture in (path, traffic_path(path)):
            picture.write_bytes(b"")
        return ""

    monkeypatch.setattr("fbo_flower.reports.figures.draw", draw)


@pytest.fixture
def few_trees(monkeypatch):
    """Fit small forests; `test_importance` has whole ones."""
    monkeypatch.setattr("fbo_flower.reports.importance._NUM_TREES", 8)


__all__ = [
    "_ray_stack", "devices", "few_trees", "flowers_log_level", "flwr_run", "pytest_collection_modifyitems",
    "pytest_configure", "ray_cluster", "registered_before", "unpictured",
]  # fmt: skip
