"""A test event goes through the real door, with the source's real secret."""

from typing import Any

import pytest

from runs.models import AuditEntry
from tests.support.hooks import add_secret, make_source
from triggers.models import Event, RefusedDelivery, Source
from triggers.sources.edit import create_source
from triggers.sources.secrets import rotate
from triggers.sources.webhooks.scheme import schemes
from triggers.sources.webhooks.test_event import can_be_tried, send_test_event

pytestmark = pytest.mark.django_db
SETTINGS: dict[str, dict[str, Any]] = {
    "none": {"unverified": True},
    "pubsub": {"account": "push@shop-1.iam.gserviceaccount.com"},
    "sns": {"topic": "arn:aws:sns:eu-west-1:123456789012:uploads"},
}


@pytest.mark.parametrize("kind", schemes())
def test_a_new_source_accepts_its_test_event(kind: str) -> None:
    source = create_source("shop", kind=kind, settings=SETTINGS.get(kind, {}), by="test")
    if not can_be_tried(source):
        pytest.skip("only the sender can prove a delivery")
    if schemes()[kind].needs_secret:
        rotate(source, by="test")

    trial = send_test_event(source, by="admin:ada")

    event = Event.objects.get(source=source)
    assert (trial.status, trial.event_id, trial.reason) == (202, event.pk, "")
    assert event.headers is not None and event.headers["wakeful-test"] == "1"
    assert AuditEntry.objects.get(action="send test event").detail == {"status": 202, "event": str(event.pk)}


def test_a_test_event_does_not_count_as_a_use_of_the_secret() -> None:
    source = make_source()
    add_secret(source, "the new one")

    assert send_test_event(source, by="test").status == 202
    assert not source.secrets.exclude(last_matched_at=None).exists()


def test_the_limit_of_addresses_is_not_the_tests_and_the_other_limits_are() -> None:
    source = make_source(limits={"networks": "192.0.2.7", "per_minute": 1})

    trials = [send_test_event(source, by="test") for _ in range(2)]

    assert [trial.status for trial in trials] == [202, 503]


def test_a_source_that_cannot_accept_anything_gives_the_reason() -> None:
    without, disabled = make_source("without", secret=None), make_source("disabled", enabled=False)
    broken = make_source("broken", settings={"algorithm": "md5"})

    answers = {source.slug: send_test_event(source, by="test") for source in (without, disabled)}

    assert (answers["without"].status, answers["without"].reason) == (401, "the source has no live secret")
    assert (answers["disabled"].status, answers["disabled"].reason) == (404, "the source is disabled")
    assert not can_be_tried(broken)
    assert not Event.objects.exists()
    assert not RefusedDelivery.objects.exists()


def test_a_built_in_source_has_no_test_event() -> None:
    assert not can_be_tried(Source.objects.get(slug="schedule"))
