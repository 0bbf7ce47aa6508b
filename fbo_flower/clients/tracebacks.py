"""Log the traceback of each distinct error of an objective once."""

from __future__ import annotations

import hashlib
import traceback
from dataclasses import dataclass
from typing import cast

from fbo_flower.clients.memory import Memory
from fbo_flower.errors import printable

_ERRORS_NOTE = "errors"
_MOST = 20  # distinct errors that an agent remembers
_MOST_CHARACTERS = 500  # of a line


@dataclass(frozen=True)
class ErrorTexts:
    """An error in texts, which can be passed between processes.

    Parameters
    ----------
    kind : its type
    where : file and line where it was raised, if known
    frames : the lines of its traceback
    says : the error and its cause, if there is one, as Python prints them
    """

    kind: str
    where: tuple[str, ...]
    frames: tuple[str, ...]
    says: tuple[str, ...]

    @staticmethod
    def of(error: BaseException) -> ErrorTexts:
        """Return the texts of an error."""
        last = traceback.extract_tb(error.__traceback__)[-1:]
        chain = [error] if error.__cause__ is None else [error, error.__cause__]
        return ErrorTexts(
            type(error).__name__,
            tuple(f"{frame.filename}:{frame.lineno}" for frame in last),
            tuple(line for entry in traceback.format_tb(error.__traceback__) for line in entry.splitlines()),
            tuple("".join(traceback.format_exception_only(e)).rstrip() for e in chain),
        )


def new_traceback(memory: Memory, error: BaseException | ErrorTexts | None) -> str:
    """Return the traceback of an error, in indented lines; "" if the agent has returned it before.

    Two errors are the same if they have the same type and were raised at the same line of the same file. The
    agent's memory keeps their checksums, because on a device every message may start a new process.
    """
    if error is None:
        return ""
    texts = error if isinstance(error, ErrorTexts) else ErrorTexts.of(error)
    key = hashlib.sha256(" ".join([texts.kind, *texts.where]).encode()).hexdigest()[:16]
    known = cast(list[str], memory.note(_ERRORS_NOTE).get("seen", []))
    if key in known:
        return ""
    memory.put_note(_ERRORS_NOTE, {"seen": [*known, key][-_MOST:]})
    # the text of an error is one line, so that it cannot look like lines of the log
    lines = ["Traceback (most recent call last):", *texts.frames, *texts.says[:1]]
    lines += [f"caused by {cause}" for cause in texts.says[1:]]
    return "".join(f"\n  {printable(line)[:_MOST_CHARACTERS]}" for line in lines)
