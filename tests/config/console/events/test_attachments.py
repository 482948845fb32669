"""Attachments of mail can be downloaded from the page of its event, as files that no browser opens."""

import base64
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.config.console.conftest import LogIn
from tests.support.console import page_of
from tests.support.triggers import make_event
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Event
from triggers.retention.erasure import erase_event
from triggers.sources.attachments import attachments_of
from triggers.sources.polling.mailbox import received

pytestmark = pytest.mark.django_db

PAGE = b"<script>alert(1)</script>"
LARGE = b"%PDF" + b"x" * 100_000


def mail(**fields: Any) -> Event:
    files = [("text/html", "page.html", PAGE), ("application/pdf", "grüße.pdf", LARGE)]
    parts = [
        f"--b\r\nContent-Type: {kind}\r\nContent-Disposition: attachment; filename*=utf-8''{name}\r\n"
        f"Content-Transfer-Encoding: base64\r\n\r\n{base64.b64encode(content).decode()}\r\n"
        for kind, name, content in files
    ]
    head = 'From: bob@example.com\r\nContent-Type: multipart/mixed; boundary="b"\r\n\r\n'
    raw = f"{head}{''.join(parts)}--b--\r\n".encode()
    found = received(raw, whole=len(raw))
    return make_event(type=found.type, data=found.payload.data, body=raw, **fields)


def url_of(event: Event, number: int) -> str:
    return reverse("admin:triggers_event_attachment", args=[event.pk, number])


def test_the_page_links_each_attachment_and_the_link_gives_its_content(admin: Client) -> None:
    event = mail()

    page = admin.get(page_of("triggers_event", event)).content.decode()
    answers = [admin.get(url_of(event, number)) for number in (1, 2)]

    assert url_of(event, 1) in page and url_of(event, 2) in page and "grüße.pdf" in page
    assert [answer.content for answer in answers] == [PAGE, LARGE]
    assert answers[0]["Content-Disposition"] == 'attachment; filename="page.html"'
    assert answers[1]["Content-Disposition"] == "attachment; filename*=utf-8''gr%C3%BC%C3%9Fe.pdf"
    for answer in answers:
        assert answer["Content-Type"] == "application/octet-stream"
        assert (answer["X-Content-Type-Options"], answer["Content-Security-Policy"]) == ("nosniff", "sandbox")


def test_an_attachment_is_404_beyond_the_last_and_after_an_erasure(admin: Client) -> None:
    event = mail()
    assert [admin.get(url_of(event, number)).status_code for number in (0, 3)] == [404, 404]

    dispatch(Rules())
    erase_event(event, by="ada")

    assert admin.get(url_of(event, 1)).status_code == 404
    assert attachments_of(event.pk) == []


def test_attachments_require_permission_to_view_events(log_in: LogIn) -> None:
    assert log_in("triggers.view_source").get(url_of(mail(), 1)).status_code == 403


@pytest.mark.parametrize("attachments", [[{"fallback": "of Slack"}], "text", [1]])
def test_a_field_named_attachments_of_another_kind_offers_no_files(admin: Client, attachments: Any) -> None:
    event = make_event(data={"thread_id": "1", "attachments": attachments}, body=b"{}")

    answer = admin.get(page_of("triggers_event", event))

    assert answer.status_code == 200 and "Files of strangers" not in answer.content.decode()
    assert admin.get(url_of(event, 1)).status_code == 404
