"""`docs/reference.md` is made from the code."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import typer

from fbo_flower.app.config import AppConfig
from fbo_flower.cli.main import app
from fbo_flower.cli.reference import reference_blocks, renew
from fbo_flower.errors import ConfigError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference.md"


def test_the_page_holds_the_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for place, block in reference_blocks(ROOT / "pyproject.toml").items():
        assert block in page, (
            f"docs/reference.md: the table after <!-- {place}:begin --> is old; "
            "run python -m fbo_flower.cli.reference docs/reference.md"
        )


def test_every_command_has_its_options_with_a_text() -> None:
    block = reference_blocks(ROOT / "pyproject.toml")["commands"]
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]  # a group
        assert f"### `fbo-flower {name}" in block
        for parameter in getattr(command, "params", ()):
            assert all(f"`{option}`" in block for option in parameter.opts if option.startswith("--"))
    assert not re.search(r"^- .*: *$", block, re.MULTILINE), "each has a meaning"


def test_every_key_of_the_run_config_is_one_that_the_app_reads() -> None:
    block = reference_blocks(ROOT / "pyproject.toml")["run-config"]
    keys = re.findall(r"^- `([\w-]+)`", block, re.MULTILINE)
    assert {key.replace("-", "_") for key in keys} == set(AppConfig.__annotations__)


def test_a_page_is_renewed_in_place(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    page = tmp_path / "docs" / "reference.md"
    text = PAGE.read_text(encoding="utf-8")
    page.write_text(re.sub(r"(:begin -->\n).*?(<!--)", r"\1\2", text, flags=re.DOTALL), encoding="utf-8")
    renew(page)
    assert page.read_text(encoding="utf-8") == text
    page.write_text("no place")
    with pytest.raises(ConfigError, match="expected the comments"):
        renew(page)
