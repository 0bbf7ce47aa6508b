"""Extension of griffe, which reads docstrings for the site: types come from annotations.

Our docstrings write `name : what it is`. NumPy's style, as griffe reads it, has a type after the colon.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

_SECTION = re.compile(
    r"^(Parameters|Attributes)\n-+\n(.*?)(?=\n\n[^\n]+\n-{3,}|\Z)", re.MULTILINE | re.DOTALL
)
_ENTRY = re.compile(r"^(\*{0,2}\w[\w, *]*) : (.+)$", re.MULTILINE)


def typeless(text: str) -> str:
    """Put the text of each parameter on a line of its own, where griffe expects it."""
    return _SECTION.sub(lambda section: _ENTRY.sub(r"\1\n    \2", section[0]), text)


class TypesFromAnnotations(Extension):
    """Change each docstring before it is parsed."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Do so for one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = typeless(obj.docstring.value)
