"""Shared by all tests; `pyproject.toml` puts `tests/helpers` on the path."""

import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read once, when flwr is imported
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

from flower_runtime import flwr_run  # noqa: F401  # a fixture, one SuperLink for all tests
from hypothesis import settings

# the machine may be busy with other work, and a failure must repeat
settings.register_profile("fbo-flower", deadline=None, derandomize=True)
settings.load_profile("fbo-flower")
