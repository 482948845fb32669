"""Edit named sessions: what the console and the API call.

A run that takes a turn meanwhile is not disturbed: it goes on with what it was given, and its turn comes behind what is left.
"""

from typing import Any, Literal

from django.db import transaction

from agents.guards.atomic import not_in_atomic_body
from agents.guards.storable import storable
from agents.models import Session
from agents.sessions.limits import MOST_CHARACTERS, MOST_TURNS, SUMMARY_LENGTH
from runs.exceptions import IllegalState
from runs.models.audit import record

Overflow = Literal["drop", "summarise"]


@not_in_atomic_body
def edit_session(
    session_id: int,
    *,
    summary: str,
    most_turns: int,
    most_characters: int,
    overflow: Overflow,
    by: str,
    revision: int | None = None,
) -> Session:
    """Write the summary and the rule of its size. ValueError names a wrong value; IllegalState: another edit came after
    `revision`."""
    _check(summary, most_turns, most_characters, overflow)
    with transaction.atomic():
        session = _lock(session_id, revision)
        if session.summary.split() != summary.split():  # browsers change line ends
            session.summary = storable(summary, "the summary")
            session.is_summary_tainted = False  # a person wrote it, so it is trusted
        session.most_turns, session.most_characters = most_turns, most_characters
        session.overflow = overflow
        session.save()
        rule = {"most_turns": most_turns, "most_characters": most_characters, "overflow": overflow}
        record(by, "edit", session, session=session.name, **rule)
    return session


@not_in_atomic_body
def remove_turn(session_id: int, number: int, *, by: str) -> Session:
    """Remove a turn. IllegalState: there is none of this number."""
    with transaction.atomic():
        session = _lock(session_id)
        if not session.turns.filter(number=number, messages__isnull=False).delete()[0]:
            raise IllegalState(f"Session {session.name} has no turn {number}.", status="gone")
        session.save()
        record(by, "remove_turn", session, session=session.name, turn=number)
    return session


@not_in_atomic_body
def clear_session(session_id: int, *, by: str) -> Session:
    """Remove all turns and the summary; the next run begins afresh."""
    with transaction.atomic():
        session = _lock(session_id)
        removed = session.turns.filter(messages__isnull=False).count()
        session.turns.all().delete()
        session.summary, session.is_summary_tainted = "", False
        session.save()
        record(by, "clear", session, session=session.name, turns=removed)
    return session


def _lock(session_id: int, revision: int | None = None) -> Session:
    """`save` writes the next revision. Who holds it is not written."""
    session = Session.objects.select_for_update(no_key=True).get(pk=session_id)
    if revision is not None and session.revision != revision:
        raise IllegalState(
            f"The session was edited meanwhile: it has revision {session.revision}, not {revision}. Look at it again.",
            status="edited",
        )
    session.revision += 1
    return session


def _check(summary: Any, most_turns: int, most_characters: int, overflow: str) -> None:
    if len(summary) > SUMMARY_LENGTH:
        raise ValueError(f"summary: at most {SUMMARY_LENGTH:,} characters")
    if not 1 <= most_turns <= MOST_TURNS:
        raise ValueError(f"most_turns: from 1 to {MOST_TURNS:,}")
    if not 1 <= most_characters <= MOST_CHARACTERS:
        raise ValueError(f"most_characters: from 1 to {MOST_CHARACTERS:,}")
    if overflow not in Session.Overflow:
        raise ValueError("overflow: drop or summarise")
