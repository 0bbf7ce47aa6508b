"""Damaged files of a study: each ends in one of our errors, with the file's name."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from amounts import examples
from damage import IN_BYTES, IN_ITS_PLACE

from fbo_flower.cli.main import run
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Keep, simulate
from fbo_flower.storage.warm_start import WarmStart
from fbo_flower.study import Study

NESTED = "[" * 200_000
BYTES = [
    kind for kind in IN_BYTES + IN_ITS_PLACE[:4] if "page" not in kind.__name__ and kind is not IN_BYTES[2]
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("study")
    simulate("gp-samples", agents=2, algorithm="fts", num_rounds=3, engine="inline", keep=Keep(out=directory))
    return directory


@pytest.mark.parametrize("name", ["study.json", "best.json", "trials.csv", "rounds.csv", "times.csv"])
def test_a_damaged_file_of_a_study_is_named_in_a_config_error(study: Path, tmp_path: Path, name: str) -> None:
    outcomes: Counter[str] = Counter()
    for kind in BYTES:
        for seed in range(examples(8, 3)):
            directory = tmp_path / "copy"
            shutil.rmtree(directory, ignore_errors=True)
            shutil.copytree(study, directory)
            kind(directory / name, np.random.default_rng(seed))
            try:
                Study.load(directory)
                outcomes["read"] += 1  # text has no checksum: a changed digit is another number
            except ConfigError as error:
                assert str(directory) in str(error)  # noqa: PT017
                outcomes["error"] += 1
    assert outcomes["error"] > outcomes["read"]


@pytest.mark.parametrize(
    "text",
    [
        NESTED, "[1]", "7", '"text"', "{}", '{"contestants": 7}', '{"contestants": [7]}',
        '{"contestants": [], "seed": "x"}', '{"contestants": [{"label": 1, "algorithm": "ts"}]}',
    ],
    ids=range(9),
)  # fmt: skip
def test_damaged_settings_of_a_simulation_are_one_line_that_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "simulate.json").write_text(text)
    assert run(["simulate", "--resume", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "simulate.json" in said
    assert "start a new study" in said


def test_damaged_messages_are_config_errors(study: Path, tmp_path: Path) -> None:
    (messages,) = (study / "messages").glob("*.npz")
    before = WarmStart.load(messages, "fts")
    for kind in BYTES:
        for seed in range(examples(16, 6)):
            path = tmp_path / "fts.npz"
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
            shutil.copy(messages, path)
            kind(path, np.random.default_rng(seed))
            try:
                read = WarmStart.load(path, "fts")
            except ConfigError:
                continue
            assert read.digest == before.digest  # the ZIP archive has checksums
