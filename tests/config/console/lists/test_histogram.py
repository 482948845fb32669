"""The histogram above a list: what it counts, where its bars lead, and what it costs."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from config.console.parts import histogram
from config.console.parts.histogram import MOST_BARS, Range
from runs.models import Run
from tests.support.console import context_of, list_of
from tests.support.old_rows import id_of, old_event
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.accept import builtin_source
from triggers.models import Event, Redelivery

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY = "?start=2026-11-20T00:00Z&end=2026-11-21T00:00Z"
VIENNA, UTC_ZONE = ZoneInfo("Europe/Vienna"), ZoneInfo("UTC")


def bars(client: Client, query: str, noun: str = "runs_run") -> list[Any]:
    return list(context_of(client, list_of(noun) + query)["cl"].histogram.bars.bars)


def filled(client: Client, query: str, noun: str = "runs_run") -> list[str]:
    return [bar.says for bar in bars(client, query, noun) if bar.parts]


def test_runs_are_counted_by_hour_and_outcome(admin: Client) -> None:
    make_run(status="succeeded", event_id=id_of(NOON))
    make_run(status="failed", event_id=id_of(NOON + timedelta(minutes=59)))
    make_run(status="waiting", event_id=id_of(NOON + timedelta(hours=1)))
    make_run(status="succeeded", event_id=id_of(NOON - timedelta(days=1)))

    assert filled(admin, DAY) == ["Friday 12:00–13:00: 2 runs, 1 failed", "Friday 13:00–14:00: 1 run, 0 failed"]


def test_a_bar_leads_to_its_own_runs(admin: Client) -> None:
    inside = make_run(status="failed", event_id=id_of(NOON))
    make_run(status="failed", event_id=id_of(NOON + timedelta(hours=2)))
    make_run(status="succeeded", event_id=id_of(NOON))

    [bar, _] = [one for one in bars(admin, f"{DAY}&status__exact=failed") if one.parts]
    page = admin.get(list_of("runs_run") + bar.url)

    assert {run.pk for run in page.context["cl"].result_list} == {inside.pk}
    query = parse_qs(urlsplit(bar.url).query)
    assert query == {
        "status__exact": ["failed"],
        "start": ["2026-11-20T12:00+00:00"],
        "end": ["2026-11-20T13:00+00:00"],
    }


def test_bars_begin_at_full_hours_of_the_zone_of_the_reader(admin: Client) -> None:
    admin.cookies["zone"] = "Asia/Kathmandu"  # 5 h 45 min ahead
    make_run(status="succeeded", event_id=id_of(NOON))

    assert filled(admin, DAY) == ["Friday 17:00–18:00: 1 run, 0 failed"]


def test_without_a_range_the_bars_reach_back_to_the_oldest_run_of_the_first_page(admin: Client) -> None:
    old = datetime.now(UTC) - timedelta(days=40)
    make_run(status="failed", event_id=id_of(old))

    [says] = filled(admin, "?status__exact=failed")

    assert says.endswith(": 1 run, 1 failed")
    assert len(bars(admin, "")) <= MOST_BARS


@pytest.mark.parametrize("filters", ["status__exact=failed", "agent=greeter", "place=ready", "q=greeter", "version=7"])
def test_the_filters_of_the_list_are_those_of_its_bars(admin: Client, filters: str) -> None:
    make_run(agent="greeter", event_id=id_of(NOON), version="7")
    make_run(agent="greeter", status="failed", event_id=id_of(NOON), version="7")
    make_run(agent="other", trigger="other", status="succeeded", event_id=id_of(NOON))

    page = admin.get(list_of("runs_run") + f"{DAY}&{filters}")
    counted = sum(part.height > 0 for bar in page.context["cl"].histogram.bars.bars for part in bar.parts)

    listed = {run.status for run in page.context["cl"].result_list}
    assert counted == len(listed)
    assert len(page.context["cl"].result_list) < Run.objects.count()


def test_of_a_bar_the_newest_rows_are_counted_and_the_page_says_so(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histogram, "MOST", 2)
    for status in ("failed", "succeeded", "succeeded"):
        make_run(status=status, event_id=id_of(NOON))

    [says] = filled(admin, DAY)
    page = admin.get(list_of("runs_run") + DAY).content.decode()

    assert says.startswith("Friday 12:00–13:00: at least 2 runs")
    assert "Of a bar with more than 2, the newest 2 are counted." in page


def test_what_is_searched_for_is_counted_however_many_newer_rows_its_bar_has(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histogram, "MOST", 1)
    searched = make_run(status="succeeded", event_id=id_of(NOON))
    make_run(status="succeeded", event_id=id_of(NOON + timedelta(minutes=1)))

    assert len(filled(admin, f"{DAY}&q={searched.pk}")) == 1


def test_events_are_counted_and_narrowed(admin: Client) -> None:
    for order, dispatched_at in (("A-312", NOON), ("A-313", NOON), ("A-314", None)):
        old_event(NOON, data={"order_id": order}, dispatched_at=dispatched_at)

    [says] = filled(admin, DAY, "triggers_event")
    [narrowed] = [bar for bar in bars(admin, f"{DAY}&field=order_id%3DA-312", "triggers_event") if bar.parts]

    assert says == "Friday 12:00–13:00: 3 events, 1 not dispatched yet"
    assert narrowed.says == "Friday 12:00–13:00: 1 event, 0 not dispatched yet"
    page = admin.get(list_of("triggers_event") + narrowed.url)
    assert [event.data["order_id"] for event in page.context["cl"].result_list] == ["A-312"]


@pytest.mark.parametrize("filters", ["state=undispatched", "state=again", "source__id__exact={source}", "type=order.*"])
def test_the_filters_of_the_list_of_events_are_those_of_its_bars(admin: Client, filters: str) -> None:
    wanted = make_event(type="order.placed")
    Redelivery.objects.create(event=wanted, body_sha256="", differs=False)
    make_event(type="visitor.came", source_id=builtin_source("manual"))
    Event.objects.exclude(pk=wanted.pk).update(dispatched_at=datetime.now(UTC))

    [says] = filled(admin, f"?{filters.format(source=wanted.source_id)}", "triggers_event")

    assert ": 1 event," in says


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("?start=yesterday-ish", "yesterday-ish"),
        ("?start=2026-11-21&end=2026-11-20", "The range ends before it begins."),
        ("?field=order", "use path=value"),
        ("?start=9999-12-31T23:59Z", "is not between the years"),
    ],
)
def test_a_form_that_is_not_valid_lists_nothing_and_has_no_bars(admin: Client, query: str, message: str) -> None:
    make_run()

    page = admin.get(list_of("runs_run") + query)

    assert message in page.content.decode()
    assert list(page.context["cl"].result_list) == []
    assert page.context["cl"].histogram is None


@pytest.mark.parametrize(
    "length",
    [
        timedelta(minutes=1),
        timedelta(minutes=47),
        timedelta(hours=5),
        timedelta(days=3),
        timedelta(days=40),
        timedelta(days=30_000),
        timedelta(days=2_900_000),
    ],
)
@pytest.mark.parametrize("zone", [VIENNA, UTC_ZONE])
def test_spans_cover_the_range_without_gaps(length: timedelta, zone: ZoneInfo) -> None:
    over = Range(datetime(2026, 10, 24, 22, 7, tzinfo=UTC), datetime(2026, 10, 24, 22, 7, tzinfo=UTC) + length)

    spans = over.spans(zone)

    assert (spans[0].start, spans[-1].end) == (over.start, over.end)
    assert all(one.end == other.start for one, other in zip(spans, spans[1:], strict=False))
    assert all(one.start < one.end for one in spans)
    assert len(spans) <= MOST_BARS + 1


def test_runs_are_found_by_a_field_of_their_events_data(admin: Client) -> None:
    event = make_event(data={"order_id": "A-312"})
    run = make_run(event_id=event.pk)
    make_run(event_id=make_event(data={"order_id": "A-313"}).pk)

    for query in ("?field=order_id%3DA-312", "?field=data.order_id%3DA-312", "?q=data.order_id%3DA-312"):
        page = admin.get(list_of("runs_run") + query)
        assert [one.pk for one in page.context["cl"].result_list] == [run.pk], query


def test_events_are_found_by_a_field_in_the_search_box(admin: Client) -> None:
    event = make_event(data={"order_id": "A-312"})
    make_event(data={"order_id": "A-313"})

    page = admin.get(list_of("triggers_event") + "?q=data.order_id%3DA-312")

    assert [one.pk for one in page.context["cl"].result_list] == [event.pk]


def test_runs_are_found_by_the_version_of_their_code(admin: Client) -> None:
    run = make_run(version="2026.11.2")
    begun = make_run(begun_version="2026.11.2", version="2026.11.3")
    make_run(version="2026.11.1")

    page = admin.get(list_of("runs_run") + "?version=2026.11.2")

    assert {one.pk for one in page.context["cl"].result_list} == {run.pk, begun.pk}
