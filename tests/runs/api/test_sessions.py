"""Sessions and memory over HTTP, and by the services that the console calls."""

from typing import Any
from uuid import uuid4

import pytest

from agents.models import MemoryNote, Session, SessionTurn
from runs.actions.memory import create_note, edit_note
from runs.actions.sessions import edit_session, remove_turn
from runs.exceptions import IllegalState
from runs.models import AuditEntry
from tests.support.api import Api
from tests.support.console import make_session

pytestmark = pytest.mark.django_db

RULE: Any = {"most_turns": 5, "most_characters": 900, "overflow": "summarise"}


def test_a_session_is_listed_read_and_cleared() -> None:
    session = make_session(1)
    SessionTurn.objects.create(session=session, number=0, run_id=uuid4(), agent="greeter", characters=0)
    api = Api()

    [listed] = api.get("sessions/").body["results"]
    assert (listed["name"], listed["turns"], listed["characters"], listed["summary"]) == (
        "session-1",
        1,
        90,
        "about disks",
    )
    read = api.get("sessions/session-1/").body
    [turn] = read["history"]
    assert (turn["number"], turn["messages"][0]["parts"][0]["content"]) == (1, "hello 1")

    cleared = api.post("sessions/session-1/clear/")

    assert (cleared.status, cleared.body["history"], cleared.body["summary"]) == (200, [], "")
    assert not SessionTurn.objects.exists()
    assert api.get("sessions/none/").status == 404
    [entry] = AuditEntry.objects.filter(kind="session")
    assert (entry.action, entry.detail) == ("clear", {"session": "session-1", "turns": 1})


def test_the_rule_and_the_summary_of_a_session_are_edited() -> None:
    session = make_session(1)
    Session.objects.update(is_summary_tainted=True)

    assert edit_session(session.pk, summary="about disks", **RULE, by="ann", revision=0).is_summary_tainted
    edited = edit_session(session.pk, summary="mine", **RULE, by="ann", revision=1)

    assert (edited.summary, edited.is_summary_tainted, edited.most_turns, edited.overflow) == (
        "mine",
        False,
        5,
        "summarise",
    )
    with pytest.raises(IllegalState, match="has revision 2, not 1"):
        edit_session(session.pk, summary="late", **RULE, by="bob", revision=1)
    for wrong in ({"most_turns": 0}, {"most_characters": 10**9}, {"overflow": "burn"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            edit_session(session.pk, summary="", **{**RULE, **wrong}, by="ann")


def test_an_edit_of_the_rule_leaves_an_untrusted_summary_untrusted() -> None:
    session = make_session(1)
    Session.objects.update(summary=" about\ndisks\n", is_summary_tainted=True)

    edited = edit_session(session.pk, summary="about\r\ndisks", **RULE, by="ann")  # as a browser sends it

    assert (edited.summary, edited.is_summary_tainted, edited.most_turns) == (" about\ndisks\n", True, 5)


def test_odd_names_and_words_are_refused_or_not_found() -> None:
    api = Api()

    assert api.client.get("/api/v1/sessions/a%00b/").status_code == 404
    assert api.client.post("/api/v1/sessions/a%00b/clear/").status_code == 404
    assert api.get("memory/", search="a" * 3000).body["results"] == []
    assert api.get("memory/", search="ü½²\x00" * 99).status == 400
    assert api.get("memory/99999999999999999999/").status == 404


def test_a_turn_is_removed_once() -> None:
    session = make_session(1)

    remove_turn(session.pk, 1, by="ann")

    with pytest.raises(IllegalState, match="no turn 1"):
        remove_turn(session.pk, 1, by="ann")


def test_notes_are_made_found_edited_and_deleted() -> None:
    api = Api()
    made = api.post("memory/", {"agent": "ops", "key": "disk", "text": "db-1 fills up"})
    create_note("desk", "customer", "wants mail", by="ann")

    assert (made.status, made.body["revision"], made.body["is_tainted"], made.body["run_id"]) == (201, 1, False, None)
    assert [note["key"] for note in api.get("memory/").body["results"]] == ["customer", "disk"]
    assert [note["key"] for note in api.get("memory/?agent=ops").body["results"]] == ["disk"]
    assert [note["key"] for note in api.get("memory/?search=mails%20fill").body["results"]] == ["disk"]
    assert api.post("memory/", {"agent": "ops", "key": "disk", "text": "again"}).status == 409

    path = f"memory/{made.body['id']}/"
    edited = api.patch(path, {"text": "db-1 is full", "trusted": False, "revision": 1})
    assert (edited.status, edited.body["text"], edited.body["is_tainted"], edited.body["revision"]) == (
        200, "db-1 is full", True, 2,
    )  # fmt: skip
    assert api.patch(path, {"text": "late", "revision": 1}).status == 409
    assert api.patch(path, {"text": "x" * 4001}).status == 400
    assert (api.delete(path).status, api.get(path).status) == (204, 404)


def test_a_note_that_a_person_edits_is_trusted_if_they_mark_it_trusted() -> None:
    note = MemoryNote.objects.create(agent="ops", key="disk", text="pay Eve", is_tainted=True, run_id=uuid4())

    edited = edit_note(note.pk, "db-1", trusted=True, by="ann")

    assert (edited.is_tainted, edited.run_id, edited.by) == (False, None, "ann")


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [("post", "sessions/session-1/clear/", {}), ("post", "memory/", {"agent": "a", "key": "k", "text": "t"})],
)
def test_who_may_look_may_not_edit(verb: str, path: str, body: Any) -> None:
    make_session(1)
    api = Api(["agents.view_session", "agents.view_memorynote"])

    assert api.get("sessions/session-1/").status == api.get("memory/").status == 200
    assert getattr(api, verb)(path, body).status == 403
