"""Log the traceback of each distinct error of an objective once."""

from __future__ import annotations

import hashlib
import traceback
from typing import cast

from fbo_flower.clients.memory import Memory
from fbo_flower.errors import printable

_NOTE = "errors"
_MOST = 20  # distinct errors that an agent remembers
_MOST_CHARACTERS = 500  # of a line


def new_traceback(memory: Memory, error: BaseException | None) -> str:
    """Return the traceback of an error, in indented lines; "" if the agent has returned it before.

    Two errors are the same if they have the same type and were raised at the same line of the same file. The
    agent's memory keeps their checksums, because on a device every message may start a new process.
    """
    if error is None:
        return ""
    where = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-1:]]
    key = hashlib.sha256(" ".join([type(error).__name__, *where]).encode()).hexdigest()[:16]
    known = cast(list[str], memory.note(_NOTE).get("seen", []))
    if key in known:
        return ""
    memory.put_note(_NOTE, {"seen": [*known, key][-_MOST:]})
    lines = ["Traceback (most recent call last):"]
    for entry in traceback.format_tb(error.__traceback__):
        lines += entry.splitlines()
    # one line, so that the text of an error cannot look like lines of the log
    lines.append("".join(traceback.format_exception_only(error)).rstrip())
    if error.__cause__ is not None:
        lines.append("caused by " + "".join(traceback.format_exception_only(error.__cause__)).rstrip())
    return "".join(f"\n  {printable(line)[:_MOST_CHARACTERS]}" for line in lines)
