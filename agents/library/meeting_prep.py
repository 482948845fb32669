"""Prepares meetings that a calendar announces as events: `meeting.planned`, `meeting.changed` and `meeting.cancelled`.

{"id": "42", "title": "Budget 2027", "starts_at": "2026-12-01T14:00+01:00", "attendees": ["Ada"], "agenda": "…", "notes": "…"}
"""

from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from agents import AgentRun, Budget, Permanent, agent, on
from agents.kernel.instants import instant_with_offset

if TYPE_CHECKING:
    from pydantic_ai import Agent as LlmAgent

AHEAD = timedelta(minutes=30)


class Brief(BaseModel):
    """What to know before a meeting."""

    brief: str = Field(max_length=1500, description="purpose, what is open, and what to bring, in a few short lines")


# The newest event of a meeting counts: it cancels a run that waits for an older time.
@agent(
    "meeting-prep",
    durable=True,
    triggers=[on.event("meeting.planned", "meeting.changed", "meeting.cancelled")],
    key="event.data.id",
    overlap="cancel_previous",
    hold_key=True,
    budget=Budget(run_usd="0.10", day_usd="1"),
    tools=[],
)
def meeting_prep(run: AgentRun) -> Any:
    """Half an hour before a meeting, sends people what they should know. Sends nothing if the invitation contains
    nothing to prepare from.
    """
    meeting = read(run.event.data)
    if run.event.type == "meeting.cancelled":
        return {"meeting": meeting["id"], "prepared": False, "because": "cancelled"}
    if not (meeting["agenda"] or meeting["notes"]):
        return {"meeting": meeting["id"], "prepared": False, "because": "there is no agenda and no note"}
    begins = instant_with_offset(meeting["starts_at"])
    if run.now() >= begins:
        return {"meeting": meeting["id"], "prepared": False, "because": "it has begun"}
    run.sleep_until(begins - AHEAD)
    brief = run.llm(preparer(), "Prepare this meeting.", untrusted=meeting).output.brief
    run.notify(told(meeting, begins, brief), topic=f"meeting:{meeting['id']}")
    return {"meeting": meeting["id"], "prepared": True}


def read(data: Any) -> dict[str, Any]:
    """Permanent: it is no meeting."""
    given = data if isinstance(data, dict) else {}
    texts = {name: given.get(name) or "" for name in ("id", "title", "starts_at", "agenda", "notes")}
    people = given.get("attendees") or []
    if not all(isinstance(text, str) for text in [*texts.values(), *people]) or not (texts["id"] and texts["title"]):
        raise Permanent('not a meeting: send "id", "title", "starts_at", "agenda" and "notes" as texts')
    try:
        instant_with_offset(texts["starts_at"])
    except ValueError as error:
        raise Permanent(f'"starts_at": {error}') from error
    return {**texts, "title": texts["title"][:200], "attendees": people[:50]}


def told(meeting: dict[str, Any], begins: datetime, brief: str) -> str:
    people = f", with {', '.join(meeting['attendees'])}" if meeting["attendees"] else ""
    return f"{meeting['title']} begins at {begins:%H:%M %Z}{people}.\n{brief}"


@cache
def preparer() -> "LlmAgent[None, Brief]":
    # Importing pydantic-ai takes most of a second, and only a worker that asks a model needs it.
    from pydantic_ai import Agent as LlmAgent

    return LlmAgent(
        name="meeting-preparer",
        output_type=Brief,
        instructions=(
            "You prepare a person for the meeting in the data block. Say what it is for, what was left open, and what to bring. "
            "Invent nothing: use only what stands there."
        ),
    )
