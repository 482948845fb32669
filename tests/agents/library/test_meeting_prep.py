"""Meetings are prepared half an hour ahead, if there is something to prepare from."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

from agents.exceptions import Permanent
from agents.library.meeting_prep import meeting_prep
from agents.testing import AgentResult, assert_replays, run_agent

pytestmark = pytest.mark.django_db

BEGINS = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
MEETING = {"id": "42", "title": "Budget 2027", "starts_at": BEGINS.isoformat(), "attendees": ["Ada"], "agenda": "Cuts"}
BRIEF = TestModel(custom_output_args={"brief": "Bring the numbers."})


def prepare(data: Any, type: str = "meeting.planned") -> AgentResult:
    return run_agent(meeting_prep, data=data, type=type, model=BRIEF)


def test_people_are_notified_half_an_hour_before_a_meeting() -> None:
    until_then = BEGINS - timedelta(minutes=30) - datetime.now(UTC)
    done = prepare(MEETING)

    [notice] = done.notifications
    assert notice.text == f"Budget 2027 begins at {BEGINS:%H:%M} UTC, with Ada.\nBring the numbers."
    assert until_then - timedelta(minutes=5) < done.journal.elapsed <= until_then
    assert done.is_tainted
    assert_replays(done)


@pytest.mark.parametrize(
    ("change", "type"),
    [
        ({"agenda": ""}, "meeting.planned"),
        ({}, "meeting.cancelled"),
        ({"starts_at": (BEGINS - timedelta(days=1)).isoformat()}, "meeting.changed"),
    ],
)
def test_other_meetings_cause_no_notification_and_no_model_call(change: dict[str, str], type: str) -> None:
    done = prepare({**MEETING, **change}, type)

    assert not done.notifications
    assert not done.result["prepared"]
    assert not [key for key in done.journal.keys if key.startswith("llm")]


@pytest.mark.parametrize("data", [None, {}, {**MEETING, "starts_at": "soon"}, {**MEETING, "title": 7}])
def test_an_event_that_is_no_meeting_fails_permanently(data: Any) -> None:
    with pytest.raises(Permanent):
        prepare(data)
