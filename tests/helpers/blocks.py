"""The code blocks of a page."""

import re
from dataclasses import dataclass

from flower_runtime import ROOT


@dataclass(frozen=True)
class Block:
    """A code block: its language, the tag behind it, and its text."""

    language: str
    tag: str
    text: str


def blocks(page):
    """Return the blocks of a page, by its path in the repository, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [Block(*parts) for parts in found]
