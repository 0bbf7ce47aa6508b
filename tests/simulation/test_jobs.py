import numpy as np
import pytest

from fbo_flower.errors import ConfigError
from fbo_flower.simulation.jobs import Cell, load_cell, open_directory, run_cells


def square(x: float) -> dict[str, np.ndarray]:
    return {"y": np.array([x * x])}


def fail(x: float) -> dict[str, np.ndarray]:
    raise RuntimeError(f"cell {x}")


def test_cells_are_computed_once_and_found_again(tmp_path):
    directory = open_directory(tmp_path, {"a": 1})
    seen = []
    cells = [Cell(f"c{i}", square, {"x": float(i)}) for i in range(3)]
    run_cells(cells[:2], directory, 1, lambda done, of: seen.append((done, of)))
    run_cells([*cells[:1], Cell("c1", fail, {"x": 1.0})], directory, 1)  # not run: its file is there
    run_cells(cells, directory, 1)
    assert [load_cell(directory, c.name)["y"][0] for c in cells] == [0.0, 1.0, 4.0]
    assert seen[0] == (0, 2)
    assert seen[-1] == (2, 2)


def test_a_failing_cell_leaves_the_finished_ones(tmp_path):
    directory = open_directory(tmp_path, {})
    with pytest.raises(RuntimeError, match="cell 7"):
        run_cells([Cell("good", square, {"x": 3.0}), Cell("bad", fail, {"x": 7})], directory, 1)
    assert load_cell(directory, "good")["y"][0] == 9.0
    assert not (directory / "cells" / "bad.npz").exists()


def test_a_directory_of_other_settings_is_refused(tmp_path):
    open_directory(tmp_path, {"starts": 2})
    open_directory(tmp_path, {"starts": 2})
    with pytest.raises(ConfigError, match="same settings"):
        open_directory(tmp_path, {"starts": 8})
