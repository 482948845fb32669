"""The form that writes a filter for messages: what it writes is tried, and saved by the form of the trigger."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from tests.config.console.conftest import LogIn
from tests.support.triggers import make_event, make_trigger
from triggers.models import Trigger

pytestmark = pytest.mark.django_db
EDIT = re.compile(r'href="([^"]*/edit/\?filter=[^"]*)"')


def post(client: Client, trigger: Trigger, **fields: str) -> str:
    content: str = client.post(f"/admin/triggers/trigger/{trigger.pk}/messages/", fields).content.decode()
    return unescape(content)


def slack(text: str) -> dict[str, Any]:
    return {"event": {"type": "message", "text": text, "user": "U1", "channel": "C1"}}


def test_a_message_filter_is_tried_on_recent_events_and_offered_to_the_form_of_the_trigger(admin: Client) -> None:
    trigger = make_trigger(types=["message"])
    for text in ("An invoice", "hello"):
        make_event(type="message", data=slack(text))

    shown = post(admin, trigger, kind="slack", keywords="invoice\nrefund", channels="C1", by_people="on")

    assert (
        r'.matches(r"(?i)(?:(?:^|[^\pL\pN_])invoice(?:[^\pL\pN_]|$)|(?:^|[^\pL\pN_])refund(?:[^\pL\pN_]|$))")' in shown
    )
    assert "1 of 2 match" in shown
    found = EDIT.search(shown)
    assert found
    assert 'event.data.event.channel == "C1"' in unescape(admin.get(found.group(1)).content.decode())
    assert Trigger.objects.get(pk=trigger.pk).filter == ""


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"kind": "slack", "regex": "(?=a)b"}, "no regular expression of RE2"),
        ({"kind": "slack", "regex": "("}, "no regular expression of RE2"),
        ({"kind": "chat", "text": "a b", "keywords": "x"}, "no path such as message.body"),
        ({"kind": "chat", "text": "text", "senders": "x"}, "messages of this kind have none"),
        (
            {"kind": "slack", "keywords": "\n".join(f"word{number}" for number in range(400))},
            "at most 2,000 are allowed",
        ),
    ],
)
def test_an_invalid_pattern_shows_its_error(admin: Client, fields: dict[str, str], error: str) -> None:
    assert error in post(admin, make_trigger(), **fields)


def test_only_who_may_change_triggers_writes_filters(log_in: LogIn) -> None:
    trigger = make_trigger()
    path = f"/admin/triggers/trigger/{trigger.pk}/messages/"

    assert log_in("triggers.view_trigger", "triggers.view_event").get(path).status_code == 403
    changer = log_in("triggers.view_trigger", "triggers.change_trigger", name="bob")
    shown = post(changer, trigger, kind="slack", keywords="x")
    assert "The filter is written" in shown and "Recent events" not in shown
