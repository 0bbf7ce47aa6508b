"""`docs/reference.md` and the tables of `docs/algorithms.md` are made from the code."""

import re

import pytest
import reference
import typer
from processes import ROOT

from fbo_flower.app.config import AppConfig
from fbo_flower.cli.main import app
from fbo_flower.errors import ConfigError


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_holds_the_tables_of_today(name):
    text, blocks = (ROOT / "docs" / name).read_text(encoding="utf-8"), reference.PAGES[name]()
    assert reference.renewed(text, blocks) == text, "run python .ci/reference.py"
    emptied = re.sub(r"(:begin -->\n).*?(<!--)", r"\1\2", text, flags=re.DOTALL)
    assert reference.renewed(emptied, blocks) == text
    with pytest.raises(ConfigError, match="expected the comments"):
        reference.renewed("no place", blocks)


def test_every_command_and_every_key_has_a_meaning():
    blocks = reference.reference_blocks()
    for name, command in typer.main.get_command(app).commands.items():  # a group
        assert f"### `fbo-flower {name}" in blocks["commands"]
        for parameter in getattr(command, "params", ()):
            named = [option for option in parameter.opts if option.startswith("--")]
            assert all(f"`{option}`" in blocks["commands"] for option in named)
    assert not re.search(r": *$", blocks["commands"], re.MULTILINE)
    keys = re.findall(r"^- `([\w-]+)`", blocks["run-config"], re.MULTILINE)
    assert {key.replace("-", "_") for key in keys} == set(AppConfig.__annotations__)
