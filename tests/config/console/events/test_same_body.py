"""A delivery whose id is not signed may be a leaked one that was sent again under another id: the event's page warns of it."""

from typing import Any

import pytest
from django.test import Client

from config.console.events.page import earlier_with_the_body_of
from tests.support.console import page_of
from tests.support.hooks import SECRET, make_source, post, signed_headers
from tests.support.triggers import fill_with_copies
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Event

pytestmark = pytest.mark.django_db
FLAG = "with another id"


def receive(id_: str, body: bytes = b'{"order": 7}', slug: str = "shop", signs: bytes | None = None) -> Event:
    assert post(body, {**signed_headers(signs or body), "X-Id": id_}, slug).status_code == 202
    dispatch(Rules())
    return Event.objects.get(ce_id=id_, source__slug=slug)


def page_text(client: Client, event: Event) -> str:
    return client.get(page_of("triggers_event", event)).content.decode()


def test_the_same_body_under_another_id_is_flagged_with_the_event_before(admin: Client) -> None:
    make_source()
    first, second = receive("a"), receive("b")

    assert FLAG not in page_text(admin, first)
    assert FLAG in page_text(admin, second)
    assert page_of("triggers_event", first) in page_text(admin, second)


def test_another_body_or_the_same_of_another_source_is_not(admin: Client) -> None:
    make_source()
    make_source("other")
    receive("a")

    assert FLAG not in page_text(admin, receive("b", b'{"order": 8}'))
    assert FLAG not in page_text(admin, receive("c", slug="other"))


def test_equal_bodies_are_not_flagged_where_the_id_is_signed(admin: Client) -> None:
    make_source(settings={"id_header": "X-Id", "template": "{id}.{body}"})
    receive("a", signs=b'a.{"order": 7}')

    assert FLAG not in page_text(admin, receive("b", signs=b'b.{"order": 7}'))


def test_the_list_of_kinds_names_it(admin: Client) -> None:
    """Bearer tokens and unverified sources sign nothing, Standard Webhooks sign the id."""
    for slug, kind, headers in (("github", "github", {}), ("bearer", "bearer", {"Authorization": f"Bearer {SECRET}"})):
        make_source(slug, kind, settings={} if kind == "github" else {"id_header": "X-Id"})
        for id_ in ("a", "b"):
            body = b"{}"
            given: dict[str, Any] = {**headers, "X-Id": id_, "X-GitHub-Delivery": id_, "X-GitHub-Event": "push"}
            given["X-Hub-Signature-256"] = f"sha256={signed_headers(body)['X-Signature']}"
            assert post(body, given, slug).status_code == 202
        dispatch(Rules())

    assert FLAG in page_text(admin, Event.objects.get(source__slug="github", ce_id="b"))
    assert FLAG not in page_text(admin, Event.objects.get(source__slug="bearer", ce_id="b"))


def test_an_earlier_event_with_the_same_body_is_found_by_an_index() -> None:
    make_source()
    event = receive("a")
    fill_with_copies(event, {"body_sha256": "md5(n::text)"})

    assert "event_by_body" in earlier_with_the_body_of(event).explain()
