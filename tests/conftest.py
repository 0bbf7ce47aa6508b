"""Shared by all tests; `pyproject.toml` puts `tests/helpers` on the path."""

from suite import *  # noqa: F403
