"""A refused delivery leaves a trace: a row, a counter, and a problem where the sender was proven before."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from config.health.problems import problems
from config.health.situation import read_situation
from tests.config.health.test_metrics import scrape
from tests.support.hooks import make_source, post, signed_headers
from triggers.models import RefusedDelivery, Source
from triggers.sources.webhooks import refusals

pytestmark = [pytest.mark.django_db]

HOUR = timedelta(hours=1)


def proven(source: Source, *, ago: timedelta) -> None:
    source.secrets.update(last_matched_at=timezone.now() - ago)


def refusing() -> list[str]:
    return [problem.text for problem in problems(read_situation()) if problem.name == "refusing:shop"]


def test_refused_deliveries_are_counted_by_reason() -> None:
    source = make_source()

    for _ in range(3):
        assert post(b"{}", {**signed_headers(b"{}"), "X-Signature": "sha256=" + "0" * 64}).status_code == 401
    assert post(b"{}", {}).status_code == 401

    rows = RefusedDelivery.objects.order_by("-count").values_list("source", "status", "reason", "count")
    assert list(rows) == [
        (source.id, 401, "no live secret matches", 3),
        (source.id, 401, "X-Signature is missing", 1),
    ]
    assert scrape()["wakeful_deliveries_refused", "401", "shop"] == 4


def test_every_other_refusal_of_a_source_is_counted_too() -> None:
    make_source("shop", settings={"algorithm": "rot13"})
    make_source("store", enabled=False)
    make_source("sly")

    assert post(b"{}", signed_headers(b"{}"), "shop").status_code == 503
    assert post(b"{}", signed_headers(b"{}"), "store").status_code == 404
    assert post(b"{}", {**signed_headers(b"{}"), "X-Type": "run.signal"}, "sly").status_code == 400

    assert set(RefusedDelivery.objects.values_list("source__slug", "status")) == {
        ("shop", 503),
        ("store", 404),
        ("sly", 400),
    }


def test_an_address_that_no_source_has_leaves_no_row() -> None:
    assert post(b"{}", {}, "nothing-here").status_code == 404
    assert post(b"{}", {}, "manual").status_code == 404

    assert not RefusedDelivery.objects.exists()


def test_a_refusal_that_cannot_be_noted_is_answered_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    make_source()
    monkeypatch.setattr(refusals, "NOTE", "SELECT 1/0 /* %(slug)s %(kinds)s %(reason)s %(status)s %(user_agent)s */")

    assert post(b"{}", {}).status_code == 401


def test_a_sender_that_was_proven_and_is_refused_now_is_a_problem() -> None:
    source = make_source()
    proven(source, ago=HOUR)
    assert not refusing()

    post(b"{}", {"X-Signature": "sha256=" + "0" * 64})

    [text] = refusing()
    assert "1 of the last day were refused since then" in text
    assert "no live secret matches" in text
    assert "The last authenticated delivery came 1 h ago" in text


def test_a_stranger_at_the_address_of_a_sender_that_is_proven_is_no_problem() -> None:
    source = make_source()
    post(b"{}", {"X-Signature": "sha256=" + "0" * 64})
    proven(source, ago=timedelta())

    assert not refusing()


def test_refusals_before_any_proof_are_no_problem_for_nothing_worked_before() -> None:
    make_source()
    post(b"{}", {})

    assert not refusing()


def test_a_delivery_refused_within_a_minute_of_a_proven_one_is_not_passed_over(admin_client: Client) -> None:
    source = make_source()
    proven(source, ago=timedelta())
    post(b"{}", {"X-Signature": "sha256=" + "0" * 64})

    page = admin_client.get(f"/admin/triggers/source/{source.pk}/change/").content.decode()

    assert "Deliveries were refused within the same minute, the last" in page


def test_the_page_of_the_source_shows_the_refused_and_does_not_call_the_sender_proven(admin_client: Client) -> None:
    source = make_source()
    proven(source, ago=HOUR)
    post(b"{}", {"X-Signature": "sha256=" + "0" * 64, "User-Agent": "Shop/1.0"})

    page = admin_client.get(f"/admin/triggers/source/{source.pk}/change/").content.decode()

    assert "The last authenticated delivery came 1 h ago. Deliveries were refused since then" in page
    assert "Refused deliveries" in page
    assert "no live secret matches" in page
    assert "Shop/1.0" in page
