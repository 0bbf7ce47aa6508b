"""Append-only journals: an agent's evaluations and reports, and a server's tasks and replies."""

from __future__ import annotations

from fbo_flower.storage.agent_journal import AgentJournal
from fbo_flower.storage.files import atomic_file, read_arrays, writable_directory
from fbo_flower.storage.paths import file_name, path_of
from fbo_flower.storage.study_journal import Event, StudyJournal

__all__ = [
    "AgentJournal",
    "Event",
    "StudyJournal",
    "atomic_file",
    "file_name",
    "path_of",
    "read_arrays",
    "writable_directory",
]
