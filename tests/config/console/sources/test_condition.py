"""One word for how a source does, by the rhythm of its own past: in the list, on its page and on the first page."""

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from uuid_utils import uuid7

from config.console.sources.condition import LAST, Found, _rhythm, _state, conditions_of
from runs.db.sql import fetch
from tests.support.console import list_of, make_source, make_switch_row, page_of
from triggers.accept import builtin_source
from triggers.models import Event, MetricSample, MetricSeries, Reading, RefusedDelivery, Source

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NIGHT = datetime(2026, 3, 10, 3, tzinfo=UTC)


def found(gaps: list[timedelta], quiet: timedelta, **others: object) -> Found:
    """A source that is quiet for so long, after events with these gaps, the newest first."""
    at = [NIGHT - quiet]
    for gap in gaps:
        at.append(at[-1] - gap)
    known = dict.fromkeys(Found.__annotations__) | {"id": UUID(int=1), "error": "", "is_read": True, "now": NIGHT}
    return Found(**(known | {"at": at, "last_at": at[0]} | others))  # type: ignore[arg-type]


def word(found: Found, **fields: object) -> str:
    source = Source(kind="github", enabled=True)
    for name, value in fields.items():
        setattr(source, name, value)
    return _state(source, found, _rhythm(found))[0]


@pytest.mark.parametrize(
    ("gaps", "quiet", "expected"),
    [
        ([MINUTE] * 8, 9 * MINUTE, "as usual"),
        ([MINUTE] * 8, 61 * MINUTE, "silent"),
        ([MINUTE] * 8 + [HOUR], 2.9 * HOUR, "as usual"),
        ([MINUTE] * 8 + [HOUR], 3.1 * HOUR, "silent"),
        ([DAY] * 5, 2 * DAY, "as usual"),
        ([DAY] * 4, 90 * DAY, "too few events yet"),
        ([], DAY, "too few events yet"),
    ],
)
def test_silent_is_three_times_as_long_as_its_longest_gap(
    gaps: list[timedelta], quiet: timedelta, expected: str
) -> None:
    assert word(found(gaps, quiet)) == expected


def test_a_night_without_an_event_is_no_silence_and_a_morning_is() -> None:
    """It sends each minute from 8 to 18 o'clock."""
    evening = 9 * HOUR
    assert word(found([MINUTE] * 20, evening)) == "silent"
    assert word(found([MINUTE] * 20, evening, yesterday=NIGHT - DAY - evening)) == "as usual"
    assert word(found([MINUTE] * 20, 15 * HOUR, yesterday=NIGHT - DAY - MINUTE)) == "silent"


def test_a_weekend_without_an_event_is_no_silence() -> None:
    assert word(found([MINUTE] * 20, 40 * HOUR, yesterday=NIGHT - 40 * HOUR)) == "silent"
    weekly = {"yesterday": NIGHT - 40 * HOUR, "week": NIGHT - timedelta(days=7) - 40 * HOUR}
    assert word(found([MINUTE] * 20, 40 * HOUR, **weekly)) == "as usual"


def test_a_silence_of_days_teaches_no_rhythm() -> None:
    """Yesterday it was quiet already, since the same event."""
    assert (
        word(found([MINUTE] * 20, 3 * DAY, yesterday=NIGHT - 3 * DAY, week=NIGHT - timedelta(days=7, minutes=1)))
        == "silent"
    )


@pytest.mark.parametrize(
    ("others", "fields", "expected"),
    [
        ({"failing_since": NIGHT}, {"kind": "feed"}, "fails"),
        ({"is_read": False}, {"kind": "feed"}, "not read"),
        ({"is_read": False}, {}, "as usual"),
        ({"refused_since": NIGHT}, {}, "refused"),
        ({"held_since": NIGHT}, {"kind": "feed"}, "held"),
        ({"failing_since": NIGHT}, {"kind": "feed", "enabled": False}, "disabled"),
        ({}, {"kind": "cli"}, "built in"),
    ],
)
def test_what_is_wrong_comes_before_the_rhythm(
    others: dict[str, object], fields: dict[str, object], expected: str
) -> None:
    assert word(found([MINUTE] * 8, MINUTE, **others), **fields) == expected


# The rows


def events_of(source: Source, *at: datetime, **fields: object) -> None:
    """In the order of their times, as they came."""
    for moment in sorted(at):
        id = UUID(int=uuid7(nanoseconds=int(moment.timestamp() * 10**9)).int)
        Event.objects.create(
            **{"id": id, "source": source, "ce_source": "test", "ce_id": str(id), "type": "came", "root_id": id},
            **{"received_at": moment, "dispatched_at": moment, **fields},
        )


def word_of(source: Source) -> str:
    return conditions_of([Source.objects.get(pk=source.pk)], now=timezone.now())[source.pk].word


def test_the_events_of_a_day_ago_are_read(db: None) -> None:
    source, now = make_source("office"), timezone.now()
    past = [now - DAY - 5 * HOUR - number * MINUTE for number in range(3)]
    events_of(source, *past)
    events_of(source, *[now - 6 * HOUR - number * MINUTE for number in range(LAST)])

    condition = conditions_of([source], now=now)[source.pk]

    assert condition.rhythm is not None
    assert condition.rhythm.yesterday == pytest.approx(5 * HOUR, abs=MINUTE)
    assert (condition.rhythm.longest, condition.word) == (MINUTE, "as usual")


def test_imported_events_make_no_rhythm(db: None) -> None:
    source, now = make_source(), timezone.now()
    events_of(source, *[now - number * DAY for number in range(10)], imported_at=now)

    assert word_of(source) == "too few events yet"


def test_a_refusal_before_the_last_event_is_over(db: None) -> None:
    source, now = make_source(), timezone.now()
    events_of(source, now - MINUTE)
    refusal = RefusedDelivery.objects.create(
        source=source, hour=now, reason="signature", status=401, first_at=now - HOUR, last_at=now - 2 * MINUTE
    )
    assert word_of(source) == "too few events yet"

    RefusedDelivery.objects.filter(pk=refusal.pk).update(last_at=now)
    condition = conditions_of([source], now=now)[source.pk]

    # What was refused before that event began earlier.
    assert (condition.word, condition.since) == ("refused", Event.objects.get().received_at)


def test_of_a_metric_its_samples_count_not_the_events_of_its_detectors(db: None) -> None:
    source, now = make_source(kind="pushed"), timezone.now()
    series = MetricSeries.objects.create(source=source, last_at=now - 3 * MINUTE)
    MetricSample.objects.bulk_create(MetricSample(series=series, at=now - n * 3 * MINUTE, value=n) for n in range(1, 9))
    events_of(source, *[now - number * DAY for number in range(10, 20)])

    condition = conditions_of([source], now=now)[source.pk]

    assert condition.counts_samples
    assert condition.rhythm is not None
    assert condition.rhythm.median == 3 * MINUTE


def test_list_page_and_first_page_show_the_same_word_and_the_page_what_it_rests_on(admin: Client) -> None:
    builtin_source("cli")
    now = timezone.now()
    quiet = make_source("quiet")
    events_of(quiet, *[now - 3 * HOUR - number * MINUTE for number in range(8)])
    down = make_switch_row("nightly-backup").source
    Reading.objects.create(
        source=make_source("news", kind="feed"), failing_since=now - HOUR, error="Connection refused"
    )

    rows = admin.get(list_of("triggers_source")).context["cl"].result_list
    home = " ".join(re.sub(r"<[^>]+>", " ", admin.get("/admin/home/").content.decode()).split())
    page = " ".join(re.sub(r"<[^>]+>", " ", admin.get(page_of("triggers_source", quiet)).content.decode()).split())

    words = {row.slug: row.condition.word for row in rows}
    assert words.items() >= {"quiet": "silent", "nightly-backup": "down", "news": "fails", "cli": "built in"}.items()
    assert rows[len(rows) - 1].condition.word == "built in"
    for slug in ("quiet", down.slug, "news"):
        assert re.search(rf"{slug} \w+ .*?{words[slug]}", home)
    assert "State silent, since" in page
    assert "usually every 1 min, 1 min at most, between its last 8 events" in page
    assert "1 h without one: 3 times the longest of these, and 1 h at least" in page
    assert {row.slug: row.condition.said for row in rows}["news"] == "since 1 h: Connection refused"


def test_any_number_of_sources_costs_three_statements_and_reads_no_table_as_a_whole(db: None) -> None:
    for number in range(3):
        events_of(make_source(f"source-{number}"), timezone.now())
    sources = list(Source.objects.all())
    large = ["triggers_event", "triggers_metricsample"]
    scans = "SELECT sum(seq_scan) FROM pg_stat_xact_user_tables WHERE relname = ANY(%s)"
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    before = fetch(scans, [large])

    with CaptureQueriesContext(connection) as captured:
        conditions_of(sources, now=timezone.now())

    assert len(captured) == 3
    assert fetch(scans, [large]) == before
