"""Search of recorded events, and its pages."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runs.db.sql import execute
from tests.support.api import Api
from tests.support.triggers import fill_with_copies, make_event
from triggers.events import pages
from triggers.events.pages import page_of
from triggers.events.search import FieldIs, Search
from triggers.exceptions import RuleError
from triggers.models import Event

pytestmark = pytest.mark.django_db


def archive(*events: Event) -> None:
    execute("UPDATE triggers_event SET dispatched_at = now() WHERE id = ANY(%s)", [[event.pk for event in events]])


def found(search: Search, size: int = 50) -> list[Any]:
    """The ids of all pages; each page but the last leads on."""
    ids: list[Any] = []
    page = page_of(search, size=size)
    ids += page.ids
    while page.before:
        page = page_of(search, size=size, before=page.before)
        ids += page.ids
    return ids


def by_field(text: str) -> Search:
    return Search(fields=(FieldIs.parse(text),))


@pytest.mark.parametrize(
    ("condition", "data"),
    [
        ("customer.id=42", {"customer": {"id": 42}}),
        ("customer.id=42", {"customer": {"id": "42"}}),
        ('customer.id="42"', {"customer": {"id": "42", "more": True}}),
        ("items[].sku=a-1", {"items": [{"sku": "b"}, {"sku": "a-1"}]}),
        ("tags[]=red", {"tags": ["blue", "red"]}),
        ("[].n=1", [{"n": 1}]),
        ('"a.b".c=x', {"a.b": {"c": "x"}}),
        ("paid=true", {"paid": True}),
        ("paid=null", {"paid": None}),
        ("Straße=Wien 1", {"Straße": "Wien 1"}),
        ("name=a=b", {"name": "a=b"}),
    ],
)
def test_a_field_is_found_whether_dispatched_or_not(condition: str, data: Any) -> None:
    archived, waiting = make_event(data=data), make_event(data=data)
    make_event(data={"customer": {"id": 43}, "tags": "red", "paid": False})
    archive(archived)

    assert found(by_field(condition)) == [waiting.pk, archived.pk]


@pytest.mark.parametrize(
    "text",
    ["a", "=1", "a.=1", ".a=1", "a..b=1", "a]=1", 'a"=1', '"a=1', "a[0]=1", "x" * 1001 + "=1", '"\\u0000"=1', "a\0b=1"],
)
def test_a_condition_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RuleError, match="path"):
        FieldIs.parse(text)


def test_a_number_as_text_is_not_found_by_a_quoted_text() -> None:
    make_event(data={"id": 42})

    assert found(by_field('id="42"')) == []


@pytest.mark.parametrize("value", ["1e400", '"\\u0000"', '"\\ud800"', "1" * 500, "NaN", '{"a": 1, "a": 2}'])
def test_a_value_that_jsonb_cannot_hold_is_searched_as_text(value: str) -> None:
    event = make_event(data={"n": value})

    assert found(by_field(f"n={value}")) == [event.pk]


@pytest.mark.parametrize("year", [1, 9999])
def test_a_time_at_the_edge_of_the_calendar_is_refused(year: int) -> None:
    at = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC) if year > 1 else datetime(year, 1, 1, tzinfo=UTC)

    with pytest.raises(RuleError, match="not between the years"):
        Search(start=at)
    with pytest.raises(RuleError, match="not between the years"):
        Search(end=at)


def test_data_that_is_too_large_is_not_searched_and_not_indexed() -> None:
    noise = [f"{n * 7919:x}" for n in range(8_000)]
    large, small = make_event(data={"id": 7, "noise": noise}), make_event(data={"id": 7})
    archive(large, small)

    assert found(by_field("id=7")) == [small.pk]


def test_fields_are_searched_by_their_index() -> None:
    event = make_event(data={"id": 0})
    archive(event)
    fill_with_copies(event, {"data": "jsonb_build_object('id', n)"})

    plan = by_field("id=7").of(Event.objects.filter(dispatched_at__isnull=False)).values("id").explain()

    assert "event_by_field" in plan


@pytest.mark.parametrize("dispatched", [True, False])
def test_a_search_applies_all_its_conditions(dispatched: bool) -> None:
    wanted = make_event(type="order.placed", subject="c-1", data={"n": 1})
    others: list[dict[str, Any]] = [{"type": "order.paid"}, {"subject": "c-2"}, {"data": {"n": 2}}, {"type": "orders"}]
    for other in others:
        make_event(**{"type": "order.placed", "subject": "c-1", "data": {"n": 1}, **other})
    if dispatched:
        archive(*Event.objects.all())
    now = datetime.now(UTC)
    search = Search(
        source="cli", type="order.pl*", subject="c-1", start=now - timedelta(minutes=5), end=now + timedelta(minutes=5),
        fields=(FieldIs.parse("n=1"),),
    )  # fmt: skip

    assert found(search) == [wanted.pk]
    assert Search.load(search.dump(), search.start, search.end) == search
    assert found(Search(source="another")) == []
    assert found(Search(start=now + timedelta(minutes=5))) == found(Search(end=now - timedelta(minutes=5))) == []


@pytest.mark.parametrize(("probe", "few", "walk"), [(1, 0, 1), (2, 1, 3), (1, 100, 1), (100, 100, 100)])
def test_pages_hold_each_event_once_in_order_whichever_way_they_are_read(
    monkeypatch: pytest.MonkeyPatch, probe: int, few: int, walk: int
) -> None:
    for name, value in {"PROBE": probe, "FEW": few, "WALK": walk}.items():
        monkeypatch.setattr(pages, name, value)
    events = [make_event(type="rare" if n % 3 == 0 else "frequent") for n in range(10)]
    archive(*events[:8])

    for type in ("rare", "frequent"):
        wanted = [event.pk for event in reversed(events) if event.type == type]
        assert found(Search(type=type), size=2) == wanted
        assert found(Search(type=f"{type[:-1]}?", source="cli"), size=2) == wanted


def test_a_page_whose_time_is_up_shows_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PROBE": 1, "FEW": 0, "WALK": 1, "PATIENCE": 0.0}.items():
        monkeypatch.setattr(pages, name, value)
    old = [make_event(type="rare") for _ in range(2)]
    new = [make_event(type="frequent") for _ in range(4)]
    archive(*old, *new)

    page = page_of(Search(type="rar?"), size=5)

    assert (page.ids, page.is_full) == ([], False)
    assert found(Search(type="rar?"), size=5) == [old[1].pk, old[0].pk]
    assert page.before in {event.seq for event in new}


def test_the_api_searches_and_pages_through_what_it_finds() -> None:
    events = [make_event(data={"customer": {"id": n % 2}}, subject=f"s-{n}") for n in range(6)]
    api = Api()

    first = api.get("events/", field="customer.id=1", limit=2).body
    rest = api.client.get(first["next"]).json()

    assert [one["id"] for one in first["results"]] == [str(events[5].pk), str(events[3].pk)]
    assert [one["id"] for one in rest["results"]] == [str(events[1].pk)]
    assert rest["next"] is None
    assert [one["subject"] for one in api.get("events/", subject="s-4", type="visitor.*").body["results"]] == ["s-4"]
    assert api.get("events/", start="2h").status == api.get("events/", field="x").status == 400
    assert api.get("events/", subject="s-4", cursor="x").status == 400


def test_the_api_names_the_condition_that_is_wrong() -> None:
    api = Api()

    assert list(api.get("events/", field="a..b=1").body) == ["field"]
    assert list(api.get("events/", start="2026-01-02", end="2026-01-01").body) == ["end"]
