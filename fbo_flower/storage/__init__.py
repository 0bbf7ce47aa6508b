"""Append-only journals: what an agent evaluated and sent, and what a server asked and heard."""

from __future__ import annotations

from fbo_flower.storage.agent_journal import AgentJournal
from fbo_flower.storage.study_journal import Event, StudyJournal

__all__ = ["AgentJournal", "Event", "StudyJournal"]
