"""The settings and fixtures of the package's tests, `tests/helpers/suite.py`."""

from suite import *  # noqa: F403

import studies  # noqa: F401  # adds its problems and comparators before a helper lists them
