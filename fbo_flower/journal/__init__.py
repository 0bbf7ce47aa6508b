"""Append-only journals: what an agent evaluated and sent, and what a server asked and heard."""

from __future__ import annotations

from fbo_flower.journal.agent_journal import AgentJournal
from fbo_flower.journal.study_journal import Event, StudyJournal

__all__ = ["AgentJournal", "Event", "StudyJournal"]
