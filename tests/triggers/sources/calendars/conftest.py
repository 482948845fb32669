from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from runs.connections import lease as leases
from runs.models import OutboxMessage, Worker
from runs.outbox import deliver_inside
from tests.support.list_server import ListServer, serving_lists
from tests.support.oauth_server import OAuthServer, providing_tokens
from tests.support.secrets import forgotten as forgotten
from triggers.models import Event, Reading, Source
from triggers.sources.edit import create_source
from triggers.sources.kind import kinds
from triggers.sources.polling import by_connection
from triggers.sources.process.record import Mandate, record
from triggers.sources.runner import Assignment, Runner


@pytest.fixture
def site(settings: Any) -> Iterator[ListServer]:
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]
    with serving_lists() as site:
        yield site


@pytest.fixture
def provider(settings: Any, forgotten: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[OAuthServer]:
    for module in (leases, by_connection):  # in the session of the test
        monkeypatch.setattr(module, "to_its_end", lambda act: act())
    monkeypatch.setattr(leases, "writing", transaction.atomic)
    with providing_tokens() as server:
        yield server


class Polled:
    """A source that is polled and recorded as the process does it, each time as by a new one."""

    def __init__(self, kind: str, *, secret: str = "", **settings: Any) -> None:
        self.source: Source = create_source("meetings", kind=kind, settings=settings, by="test")
        self.settings = settings
        self.secret = secret
        worker = Worker.objects.create(kind=Worker.Kind.SOURCES, host="test", pid=1)
        Reading.objects.update_or_create(source=self.source, defaults={"owner": worker, "epoch": 1})
        self.mandate = Mandate(source_id=self.source.pk, slug=self.source.slug, owner=worker.pk, epoch=1)

    def poll(self) -> list[Event]:
        """The events of the next poll, although it is not due."""
        reader = self.reader()
        before = set(Event.objects.values_list("pk", flat=True))
        record(self.mandate, reader.read(0.1), {})
        return list(Event.objects.exclude(pk__in=before).order_by("seq"))

    def reader(self) -> Any:
        """As a new process makes it, for a poll that is due."""
        position = Reading.objects.get(source=self.source).position
        if position:
            position["due_at"] = datetime.now(UTC).isoformat()
        runner = kinds()[self.source.kind]
        assert isinstance(runner, Runner)
        assignment: Assignment[Any] = Assignment(
            slug=self.source.slug,
            settings=runner.clean_settings(self.settings),
            secret=self.secret,
            position=position,
            source_id=UUID(str(self.source.pk)),
        )
        return runner.connect(assignment)

    @property
    def waiting(self) -> list[tuple[str, datetime]]:
        """The starts that wait, and when they are due."""
        rows = OutboxMessage.objects.filter(topic="calendar").order_by("available_at")
        return [(row.payload["data"]["title"], row.available_at) for row in rows]

    def later(self, gone: timedelta) -> list[Event]:
        """The events of starts, as if so much time had passed."""
        before = set(Event.objects.values_list("pk", flat=True))
        for row in OutboxMessage.objects.filter(topic="calendar"):
            row.available_at -= gone
            for name in ("starts_at", "useful_until"):
                row.payload[name] = (datetime.fromisoformat(row.payload[name]) - gone).isoformat()
            row.save()
        deliver_inside(100)
        return list(Event.objects.exclude(pk__in=before).order_by("seq"))


def data(event: Event) -> dict[str, Any]:
    assert isinstance(event.data, dict)
    return event.data


def said(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.type.removeprefix("calendar."), data(event)["title"]) for event in events]


def soon(**ahead: float) -> datetime:
    return (datetime.now(UTC) + timedelta(**ahead)).replace(microsecond=0)
