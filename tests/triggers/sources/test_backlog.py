"""Senders and readers wait while too many of their own events wait for dispatch; events that cannot be kept out count for neither."""

import pytest
from pytest_django import Settings

from runs.db.sql import execute
from triggers.models import Source
from triggers.sources import backlog
from triggers.sources.backlog import backlog_exceeded
from triggers.sources.kind import Waits

pytestmark = pytest.mark.django_db

EVENTS = """
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data_error, headers, body_sha256, root_id, depth)
SELECT id, %s::uuid, '/', id::text, 't', '', '', '{}', '', id, 0
FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, %s::int)) made
"""


def make(slug: str, kind: str, waiting: int) -> Source:
    source = Source.objects.create(slug=slug, kind=kind)
    execute(EVENTS, [source.pk, waiting])
    return source


def exceeded(source: Source, waits: Waits) -> bool:
    backlog._backlog = backlog.NEVER
    return backlog_exceeded(source.pk, waits)


def test_a_bulk_change_of_a_table_keeps_neither_senders_nor_readers_waiting(settings: Settings) -> None:
    settings.WAKEFUL_MAX_BACKLOG = settings.WAKEFUL_MAX_SOURCE_BACKLOG = 20
    make("rows", "table", 50)
    make("ticks", "schedule", 50)
    sender, reader = make("shop", "github", 15), make("stream", "redis_streams", 15)
    assert (exceeded(sender, Waits.SENDER), exceeded(reader, Waits.READER)) == (False, False)

    make("other", "kafka", 6)
    assert (exceeded(sender, Waits.SENDER), exceeded(reader, Waits.READER)) == (False, True)
    token = make("api-eve", "api", 6)
    assert (exceeded(sender, Waits.SENDER), exceeded(token, Waits.SENDER)) == (True, True)


def test_a_source_has_a_limit_of_its_own(settings: Settings) -> None:
    settings.WAKEFUL_MAX_SOURCE_BACKLOG = 20
    full, other = make("full", "redis_streams", 21), make("other", "redis_stream", 20)
    assert [exceeded(source, Waits.READER) for source in (full, other)] == [True, False]
