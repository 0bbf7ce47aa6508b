"""Tests on data that this package does not contain: they need the directory of these files."""

import os

import pytest

needs_data = pytest.mark.skipif(not os.environ.get("FBO_FLOWER_DATA"), reason="FBO_FLOWER_DATA is not set")
