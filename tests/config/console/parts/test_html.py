"""Stored texts in HTML: emphasis in those of set-ups, and beginnings of long ones without parts of secrets."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.test import Client

from agents.kernel.redaction import know
from config.console.notifications.words import text_of
from config.console.operations.upcoming import subject_of
from config.console.parts.html import coded, emphasised, shortened
from config.console.runs.transcript import Passage
from config.console.runs.words import first_line
from runs.models import Notification
from tests.support.console import list_of, page_of
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.upcoming.entry import Coming

NOW = datetime(2026, 11, 27, tzinfo=UTC)
SECRET = "Kaufmann-77-of-the-depot"


@pytest.mark.parametrize(
    "text, html",
    [
        ("Open *Settings* → *New app*.", "Open <em>Settings</em> → <em>New app</em>."),
        ("*a <b>*", "<em>a &lt;b&gt;</em>"),
        ("hosts such as *.example.com, *.example.org", "hosts such as *.example.com, *.example.org"),
        ("2 * 3 * 4", "2 * 3 * 4"),
    ],
)
def test_what_stands_between_asterisks_is_emphasised(text: str, html: str) -> None:
    assert emphasised(text) == html


def test_backticks_around_a_name_are_code_and_all_else_is_escaped() -> None:
    assert coded("emits `order.received`, ``a`` <b> and a lone `") == (
        "emits <code>order.received</code>, <code>a</code> &lt;b&gt; and a lone `"
    )
    assert coded("`<b>`") == "<code>&lt;b&gt;</code>"


@pytest.mark.parametrize(
    "cut",
    [
        first_line,
        lambda text: shortened(text, 100),
        lambda text: text_of(Notification(text=text)),
        lambda text: Passage(label="Prompt", text=text).begins,
        lambda text: str(subject_of(Coming(at=NOW, kind="reminder", name="", why=text, schedule_id=1))),
    ],
)
def test_the_beginning_of_a_text_ends_with_no_part_of_a_secret(cut: Callable[[str], str]) -> None:
    know(SECRET)

    shown = [cut("x" * length + SECRET) for length in range(60, 220, 5)]

    assert not [text for text in shown if SECRET[:4] in text]
    assert "short" in cut("short")


def test_no_page_shows_a_part_of_a_secret_in_a_long_subject_or_error(admin: Client) -> None:
    text = "x" * 150 + SECRET
    event = make_event(subject=text)
    make_run(status="failed", error=text, event_id=event.pk)
    know(SECRET)  # after they were stored

    paths = [
        list_of("triggers_event"),
        page_of("triggers_event", event),
        list_of("runs_run"),
        f"/admin/find/?q={event.pk}",
    ]

    assert [path for path in paths if SECRET[:8] in admin.get(path).content.decode()] == []
