"""The settings and fixtures of the package's tests, `tests/helpers/suite.py`."""

from __future__ import annotations

from suite import *  # noqa: F403

import studies  # noqa: F401  # adds the studies' problems and comparators before a helper lists them
