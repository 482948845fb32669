"""An alarm is reported once when it begins and once when it is over, and leaves at least once."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from django.utils import timezone

from config.health.alarms import stand_in, update_alarms
from config.health.situation import read_situation
from config.health.watch import Watch
from runs import outbox
from runs.actions.incidents import close_incident
from runs.db.sql import database_now
from runs.models import NIL, Alarm, Incident, Notification, OutboxMessage, Worker
from runs.notifications import alarms
from runs.processes.lease import Presence
from runs.sign import Sign
from runs.signs.undelivered import UNDELIVERED
from tests.support.answering import answering
from tests.support.hooks import make_source
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.signs.erring import ERRING
from triggers.dispatch.signs.paused_triggers import PAUSED_TRIGGERS
from triggers.dispatch.signs.stuck_offers import STUCK_OFFERS
from triggers.models import Decision, Offer, RefusedDelivery, Source

pytestmark = pytest.mark.django_db

LONG_AGO = "2026-01-01T00:00Z"


class Receiver:
    """The receiver at WAKEFUL_ALARM_URL: what it was sent, and how it answers."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.answer = 204
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(receiver.answer)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/alarms"


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    receiver = Receiver()
    with answering(receiver.server):
        settings.WAKEFUL_ALARM_URL = receiver.url
        yield receiver


def processes(*kinds: str) -> None:
    for number, kind in enumerate(kinds):
        Worker.objects.create(kind=kind, host="here", pid=number, version="1", started_at=LONG_AGO)


def texts() -> list[str]:
    return list(Notification.objects.order_by("id").values_list("text", flat=True))


def test_a_problem_is_reported_once_when_it_begins_and_once_when_it_is_over() -> None:
    processes("dispatcher", "worker")

    update_alarms()
    update_alarms()

    assert [alarm.name for alarm in Alarm.objects.all()] == ["no-beat"]
    assert len(texts()) == 1
    assert texts()[0].startswith("No beat has ever been seen: no schedule fires")

    processes("beat")
    update_alarms()
    update_alarms()

    assert Alarm.objects.get().ended_at is not None
    assert len(texts()) == 2
    assert texts()[1].startswith("Over after ")


def test_a_fault_that_comes_back_is_a_new_alarm() -> None:
    processes("dispatcher", "worker")
    update_alarms()
    processes("beat")
    update_alarms()
    Worker.objects.filter(kind="beat").update(seen_at=LONG_AGO)

    update_alarms()

    assert Alarm.objects.filter(name="no-beat").count() == 2
    assert Alarm.objects.filter(name="no-beat", ended_at=None).count() == 1


def test_a_fault_that_has_just_begun_is_no_alarm_yet(settings: Any) -> None:
    for kind in ("dispatcher", "worker", "beat"):
        Worker.objects.create(kind=kind, host="here", pid=1, version="1")
    Worker.objects.filter(kind="worker").delete()

    update_alarms()

    assert not Alarm.objects.exists()


def ends_in_an_error(slug: str) -> None:
    Decision.objects.create(event=make_event(), trigger=make_trigger(slug), replay_id=NIL, outcome="error")


HOUR = timedelta(hours=1)


def is_paused(slug: str) -> None:
    make_trigger(slug, paused_at=timezone.now(), paused_reason="10 failed runs in a row")


def cannot_be_offered(slug: str) -> None:
    Offer.objects.create(trigger=make_trigger(slug), outcome="held", failures=10, error="no room")


def refuses(slug: str, count: int) -> None:
    source = make_source(slug)
    source.secrets.update(last_matched_at=LONG_AGO)
    RefusedDelivery.objects.create(source=source, hour=timezone.now(), reason="signature", status=401, count=count)


@pytest.mark.parametrize(
    ("make_wrong", "sign", "named", "more"),
    [
        (ends_in_an_error, ERRING, "trigger-errors:{}", "trigger-errors"),
        (is_paused, PAUSED_TRIGGERS, "trigger-paused:{}", "paused-triggers"),
        (cannot_be_offered, STUCK_OFFERS, "offer:{}:held", "offers"),
    ],
)
def test_a_problem_beyond_the_reported_number_ends_no_other_alarm(
    make_wrong: Callable[[str], None], sign: Sign[Any], named: str, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign, "limit", 2)
    processes("dispatcher", "worker", "beat")

    make_wrong("mine")
    make_wrong("yours")
    update_alarms()
    both = {named.format("mine"), named.format("yours")}
    assert set(Alarm.objects.values_list("name", flat=True)) == both

    make_wrong("a-third")
    update_alarms()
    assert set(Alarm.objects.filter(ended_at=None).values_list("name", flat=True)) == {*both, more}
    assert not Alarm.objects.exclude(ended_at=None).exists()


def test_a_source_that_refuses_is_an_incident_until_its_sender_is_known_again() -> None:
    processes("dispatcher", "worker", "beat")
    refuses("mine", count=2)
    refuses("yours", count=1)

    update_alarms()
    update_alarms()

    incident = Incident.objects.get(subject="mine")
    assert (incident.kind, incident.status, incident.count, incident.cause) == ("source", "open", 2, "signature")
    assert Incident.objects.get(subject="yours").status == "noticed"
    assert not Alarm.objects.exists()
    assert texts() == ["Source mine: 2 refused deliveries in a row. signature"]

    RefusedDelivery.objects.filter(source__slug="mine").update(count=7)
    update_alarms()
    incident.refresh_from_db()
    assert incident.count == 7

    Source.objects.get(slug="mine").secrets.update(last_matched_at=timezone.now())
    update_alarms()
    incident.refresh_from_db()
    assert incident.status == "closed"
    assert len(texts()) == 2


def test_an_incident_of_a_source_begins_with_its_first_refusal_and_not_with_the_look_that_saw_it() -> None:
    refuses("mine", count=2)
    first, last = timezone.now() - timedelta(minutes=8), timezone.now() - timedelta(minutes=3)
    RefusedDelivery.objects.update(first_at=first, last_at=last)

    update_alarms()

    incident = Incident.objects.get(subject="mine")
    assert abs(incident.first_at - first) < timedelta(minutes=1) and abs(incident.last_at - last) < timedelta(minutes=1)


def test_deliveries_refused_before_the_last_authenticated_one_are_no_part_of_an_incident() -> None:
    now = timezone.now()
    refuses("mine", count=40)
    RefusedDelivery.objects.update(hour=now - 8 * HOUR, first_at=now - 8 * HOUR, last_at=now - 7 * HOUR)
    source = Source.objects.get(slug="mine")
    source.secrets.update(last_matched_at=now - 5 * HOUR)
    RefusedDelivery.objects.create(
        source=source, hour=now, reason="signature", status=401, count=2, first_at=now - HOUR, last_at=now
    )

    update_alarms()

    incident = Incident.objects.get()
    assert incident.count == 2
    assert abs(incident.first_at - (now - HOUR)) < timedelta(minutes=1)


def test_a_source_whose_sender_fell_silent_has_not_succeeded() -> None:
    processes("dispatcher", "worker", "beat")
    refuses("mine", count=2)
    update_alarms()

    RefusedDelivery.objects.update(hour=timezone.now() - timedelta(days=2))
    update_alarms()
    assert (Incident.objects.get().status, len(texts())) == ("open", 1)

    Source.objects.filter(slug="mine").update(enabled=False)
    update_alarms()
    assert texts()[1].startswith("Source mine: closed by wakeful, after ")


def test_an_incident_of_a_source_that_a_person_closed_opens_again_only_with_new_refusals() -> None:
    processes("dispatcher", "worker", "beat")
    refuses("mine", count=2)
    update_alarms()
    incident = Incident.objects.get()
    close_incident(incident.pk, by="ada")

    update_alarms()
    incident.refresh_from_db()
    assert (incident.status, incident.count) == ("closed", 2)

    RefusedDelivery.objects.update(count=3, last_at=database_now())
    update_alarms()
    incident.refresh_from_db()
    assert incident.status == "open"


def test_a_problem_beyond_the_reported_number_raises_its_alarm_when_another_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ERRING, "limit", 1)
    processes("dispatcher", "worker", "beat")
    ends_in_an_error("mine")
    update_alarms()
    ends_in_an_error("a-second")
    update_alarms()

    Decision.objects.filter(trigger__slug="mine").delete()
    update_alarms()

    assert [alarm.name for alarm in Alarm.objects.filter(ended_at=None)] == ["trigger-errors:a-second"]


def test_two_that_notice_raise_one_alarm() -> None:
    assert alarms.begin("backlog", severity="bad", text="late")
    assert not alarms.begin("backlog", severity="bad", text="late")
    assert alarms.end("backlog")
    assert not alarms.end("backlog")

    assert Notification.objects.count() == 2


def test_a_web_process_records_the_missing_dispatcher_and_the_next_dispatcher_ends_the_alarm(
    receiver: Receiver, django_assert_num_queries: Any
) -> None:
    processes("dispatcher", "worker", "web")
    presence = Presence(Worker.Kind.WEB)
    presence.renew()
    presence.renewed_at = float("-inf")
    with django_assert_num_queries(1):  # its own renewal too
        assert stand_in(presence)
    assert presence.renewed_at > float("-inf")
    Worker.objects.filter(kind="dispatcher").update(seen_at=LONG_AGO)

    stand_in(Presence(Worker.Kind.WEB))
    stand_in(Presence(Worker.Kind.WEB))

    assert [alarm.name for alarm in Alarm.objects.filter(ended_at=None)] == ["no-dispatcher"]
    assert len(texts()) == 1
    assert texts()[0].startswith("No dispatcher has been seen for ")

    processes("dispatcher")
    update_alarms()

    assert Alarm.objects.get(name="no-dispatcher").ended_at is not None
    while outbox.deliver_slow():
        pass
    assert ("no-dispatcher", "began") in [(sent["alarm"], sent["state"]) for sent in receiver.heard]
    assert ("no-dispatcher", "ended") in [(sent["alarm"], sent["state"]) for sent in receiver.heard]


def test_a_dispatcher_that_looks_before_its_row_is_renewed_begins_no_alarm_that_none_is_alive() -> None:
    processes("dispatcher", "worker", "beat")
    Worker.objects.filter(kind="dispatcher").update(seen_at=LONG_AGO)  # such as after an outage of the database

    update_alarms()

    assert not Alarm.objects.exists()


def test_a_dispatcher_that_is_gone_for_a_moment_is_no_alarm_of_the_web_process_yet() -> None:
    processes("worker", "web")
    Worker.objects.create(kind="dispatcher", host="here", pid=1, version="1", stopped_at=timezone.now())

    stand_in(Presence(Worker.Kind.WEB))

    assert not Alarm.objects.exists()


def test_a_quiet_look_is_one_statement(django_assert_num_queries: Any) -> None:
    processes("dispatcher", "worker", "beat")

    with django_assert_num_queries(1):
        assert Watch().errand() == 30.0


def test_an_alarm_is_sent_when_it_begins_and_when_it_is_over(receiver: Receiver) -> None:
    alarms.begin("no-beat", severity="bad", text="No beat.", remedy="Start one.")
    alarms.end("no-beat")

    while outbox.deliver_slow():
        pass

    assert [(sent["alarm"], sent["state"], sent["severity"]) for sent in receiver.heard] == [
        ("no-beat", "began", "bad"),
        ("no-beat", "ended", "bad"),
    ]
    assert receiver.heard[0]["text"] == "No beat."
    assert receiver.heard[1]["ended_at"]
    assert not OutboxMessage.objects.exists()


def test_an_alarm_that_is_not_taken_stays_and_gives_the_reason(receiver: Receiver) -> None:
    receiver.answer = 500
    alarms.begin("no-beat", severity="bad", text="No beat.")
    [message] = OutboxMessage.objects.all()

    outbox.deliver_slow()

    message.refresh_from_db()
    assert "500" in message.last_error
    assert read_situation()[UNDELIVERED] != []

    receiver.answer = 204
    OutboxMessage.objects.update(available_at=LONG_AGO)
    outbox.deliver_slow()
    assert not OutboxMessage.objects.exists()


def test_a_message_that_is_being_sent_comes_up_again_if_its_sender_dies(receiver: Receiver) -> None:
    alarms.begin("no-beat", severity="bad", text="No beat.")

    assert outbox.reserve(alarms.TOPIC, 10, held=False)
    assert outbox.deliver_slow() == 0  # for a minute it is with the first sender
    OutboxMessage.objects.update(available_at=LONG_AGO)

    assert outbox.deliver_slow() == 1
    assert [sent["alarm"] for sent in receiver.heard] == ["no-beat"]
    assert not OutboxMessage.objects.exists()


def test_without_an_address_nothing_is_sent() -> None:
    alarms.begin("no-beat", severity="bad", text="No beat.")

    assert not OutboxMessage.objects.exists()
