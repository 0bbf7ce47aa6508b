"""The log of a script that calls `simulate`, in a file and on a terminal."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from flwr.common.logger import LOGGER_NAME, ConsoleHandler

from fbo_flower.simulation.engines import colour_terminals_only

SCRIPT = """
from fbo_flower import Float, SearchSpace
from fbo_flower.simulation import simulate

def f(config, data):
    return 1 / (config["x"] > 0.5)  # some evaluations fail: a warning with a traceback

simulate(f, SearchSpace({"x": Float(0, 1)}), agents=2, num_rounds=2, engine="inline")
"""


def test_a_redirected_log_has_no_colour_codes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    with (tmp_path / "log").open("w") as log:
        command = [sys.executable, "script.py"]
        subprocess.run(command, cwd=tmp_path, stdout=log, stderr=log, check=True, timeout=300)
    text = (tmp_path / "log").read_text()
    assert "WARNING :" in text
    assert "[round 2/2]" in text
    assert "\x1b" not in text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "colours"), [(Terminal(), True), (io.StringIO(), False)])
def test_a_terminal_keeps_its_colours(stream: io.StringIO, colours: bool) -> None:
    handler = ConsoleHandler(colored=True, stream=stream)
    logger = logging.getLogger(LOGGER_NAME)
    logger.addHandler(handler)
    try:
        colour_terminals_only()
        logger.warning("hello")
    finally:
        logger.removeHandler(handler)
    assert ("\x1b" in stream.getvalue()) == colours
