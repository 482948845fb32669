"""Lists in JSON from a real server: pages, cursors, items that cannot be stored."""

import json
from typing import Any

import pytest

from tests.support.list_server import ListServer, Page
from tests.triggers.sources.polling.conftest import Polling
from triggers.sources.kind import kinds
from triggers.sources.polling import json_list
from triggers.sources.polling.poller import HURRY
from triggers.sources.runner import Batch, Poison, Received, SourceError
from triggers.sources.settings import InvalidSettings


def answer(value: Any, **headers: str) -> Page:
    return Page(json.dumps(value).encode(), headers=headers)


def numbered(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "title": f"number {number}"} for number in numbers]


def ids(batch: Batch) -> list[str]:
    return [message.id for message in batch.messages if isinstance(message, Received)]


def test_items_are_events_with_what_the_settings_name(site: ListServer) -> None:
    item = {"key": {"id": 7}, "kind": "order.paid", "customer": "c-1", "at": "2026-11-20T10:00:00+01:00"}
    site.pages["/items"] = answer({"data": {"items": [item]}})
    paths = {"items_path": "data.items", "id_path": "key.id", "type_path": "kind", "subject_path": "customer"}

    batch = Polling("json_list", url=site.url("/items"), begin_with="all", time_path="at", **paths).poll()

    [message] = batch.messages
    assert isinstance(message, Received)
    assert (message.id, message.type, message.subject) == ("7", "order.paid", "c-1")
    assert message.time and message.time.isoformat() == "2026-11-20T09:00:00+00:00"
    assert message.payload.data == item


def test_new_items_are_read_page_by_page_until_one_is_known(site: ListServer) -> None:
    source = Polling("json_list", url=site.url("/items"))
    site.pages["/items"] = answer(numbered(3, 2, 1))
    source.poll()
    site.pages["/items"] = answer(numbered(9, 8), Link=f'<{site.url("/items?page=2")}>; rel="next"')
    site.pages["/items?page=2"] = answer(numbered(7, 3), Link=f'<{site.url("/items?page=3")}>; rel="next"')
    site.pages["/items?page=3"] = answer(numbered(2, 1), Link=f'<{site.url("/items?page=4")}>; rel="next"')

    batch = source.poll()

    assert ids(batch) == ["7", "8", "9"]
    assert site.paths == ["/items", "/items", "/items?page=2", "/items?page=3"]


def test_an_item_that_stands_first_for_ever_hides_no_later_page(site: ListServer) -> None:
    source = Polling("json_list", url=site.url("/items"))
    site.pages["/items"] = answer(numbered(1, 3, 2))
    source.poll()
    site.pages["/items"] = answer(numbered(1, 9, 8), Link=f'<{site.url("/items?page=2")}>; rel="next"')
    site.pages["/items?page=2"] = answer(numbered(7, 6, 5), Link=f'<{site.url("/items?page=3")}>; rel="next"')
    site.pages["/items?page=3"] = answer(numbered(4, 3, 2))

    assert ids(source.poll()) == ["4", "5", "6", "7", "8", "9"]


def test_a_list_with_other_ids_at_every_fetch_is_known_by_its_content_if_the_operator_chooses(site: ListServer) -> None:
    source = Polling("json_list", url=site.url("/items"), known_by="content")
    site.pages["/items"] = answer([{"id": 1, "title": "disk full"}, {"id": 2, "title": "cpu hot"}])
    source.poll()
    site.pages["/items"] = answer([{"id": 3, "title": "disk full"}, {"id": 4, "title": "on fire"}])

    (found,) = [message for message in source.poll().messages if isinstance(message, Received)]
    assert found.payload.data["title"] == "on fire"


def test_a_cursor_in_the_answer_leads_to_the_next_page(site: ListServer) -> None:
    settings = {"items_path": "items", "next_path": "next", "cursor_parameter": "after", "begin_with": "all"}
    site.pages["/items?size=2"] = answer({"items": numbered(4, 3), "next": "c 2"})
    site.pages["/items?size=2&after=c+2"] = answer({"items": numbered(2, 1), "next": None})

    assert ids(Polling("json_list", url=site.url("/items?size=2"), **settings).poll()) == ["1", "2", "3", "4"]


def test_a_log_goes_on_at_the_last_cursor(site: ListServer) -> None:
    settings = {"items_path": "items", "next_path": "next", "cursor_parameter": "after", "order": "oldest first"}
    source = Polling("json_list", url=site.url("/log"), keep_cursor=True, **settings)
    site.pages["/log"] = answer({"items": numbered(1, 2), "next": "2"})
    site.pages["/log?after=2"] = answer({"items": numbered(3)})

    passed_over = [ids(source.poll()), ids(source.poll())]
    site.pages["/log?after=2"] = answer({"items": numbered(3, 4), "next": "4"})
    site.pages["/log?after=4"] = answer({"items": numbered(5)})
    found = [ids(source.poll()), ids(source.poll()), ids(source.poll())]

    assert passed_over == [[], []]
    assert found == [["4"], ["5"], []]
    assert site.paths[-1] == "/log?after=4"


@pytest.mark.parametrize("overlap", [0, 1])  # items of a page that the next one has again
def test_a_log_that_names_a_next_page_for_ever_is_polled_at_its_interval(site: ListServer, overlap: int) -> None:
    settings = {"items_path": "items", "next_path": "next", "cursor_parameter": "after", "order": "oldest first"}
    source = Polling("json_list", url=site.url("/log"), keep_cursor=True, **settings)

    def serve(page: int, numbers: list[int]) -> None:
        again = [numbers[0] - 1] if overlap and numbers else [3][:overlap]
        path = "/log" if page == 1 else f"/log?after={page}"
        site.pages[path] = answer({"items": numbered(*again, *numbers), "next": str(page + 1)})

    serve(1, [1, 2])
    serve(2, [3])
    serve(3, [])
    passed_over = [source.poll() for _ in range(3)]
    serve(4, [4])
    serve(5, [])
    found = [source.poll() for _ in range(2)]

    assert [ids(batch) for batch in passed_over] == [[], [], []]
    assert [batch.next_in == HURRY for batch in passed_over] == [True, True, False]
    assert [set(ids(batch)) - {"3"} for batch in found] == [{"4"}, set()]
    assert [batch.next_in == HURRY for batch in found][-1] is False


def test_a_page_with_more_items_than_are_read_is_a_gap(site: ListServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(json_list, "MOST_ITEMS", 2)
    source = Polling("json_list", url=site.url("/items"))
    site.pages["/items"] = answer(numbered(1))
    source.poll()
    site.pages["/items"] = answer(numbered(9, 8, 7), Link="</items?page=2>; rel=next")

    batch = source.poll()

    assert [message.id for message in batch.messages] == ["8", "9"]
    assert [(gap.reason, gap.detail) for gap in batch.gaps] == [("skipped", json_list.CUT)]
    log: dict[str, Any] = {"next_path": "next", "items_path": "items", "keep_cursor": True}
    for settings in ({}, log):
        site.pages["/items"] = answer({"items": numbered(1, 2, 3)} if settings else numbered(1, 2, 3))
        with pytest.raises(SourceError, match="more than"):
            Polling("json_list", url=site.url("/items"), order="oldest first", **settings).poll()


@pytest.mark.parametrize("cursor", ["/log?\0", "/log?" + "x" * 9_000])
def test_a_cursor_that_cannot_be_kept_is_an_error_of_the_source(site: ListServer, cursor: str) -> None:
    settings: Any = {"items_path": "items", "next_path": "next", "order": "oldest first", "keep_cursor": True}
    site.pages["/log"] = answer({"items": numbered(1), "next": cursor})

    with pytest.raises(SourceError, match="no usable address"):
        Polling("json_list", url=site.url("/log"), **settings).poll()


def test_more_pages_than_a_poll_reads_are_a_gap(site: ListServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(json_list, "MOST_PAGES", 2)
    source = Polling("json_list", url=site.url("/items"))
    site.pages["/items"] = answer(numbered(1))
    source.poll()
    site.pages["/items"] = answer(numbered(9, 8), Link="</items?page=2>; rel=next")
    site.pages["/items?page=2"] = answer(numbered(7, 6), Link="</items?page=3>; rel=next")

    batch = source.poll()

    assert ids(batch) == ["6", "7", "8", "9"]
    assert [gap.detail for gap in batch.gaps] == [json_list.CUT]


def test_an_item_that_cannot_be_stored_is_kept_apart(site: ListServer) -> None:
    site.pages["/items"] = answer([{"id": 1, "text": "a\0b"}, {"id": 2}])

    good, poison = Polling("json_list", url=site.url("/items"), begin_with="all").poll().messages

    assert isinstance(good, Received) and good.id == "2"
    assert isinstance(poison, Poison) and poison.id == "1"


def test_an_item_without_an_id_is_known_by_its_content(site: ListServer) -> None:
    source = Polling("json_list", url=site.url("/items"), begin_with="all")
    site.pages["/items"] = answer([{"title": "a"}, "b"])
    first = source.poll()
    site.pages["/items"] = answer([{"title": "changed"}, "b"])

    assert len(ids(first)) == 2
    assert len(ids(source.poll())) == 1


@pytest.mark.parametrize(
    ("page", "error"),
    [
        (Page(b"{"), "not readable: not JSON"),
        (Page(b'[{"id": 1, "id": 2}]'), "not readable: duplicate name"),
        (answer({"items": {}}), "no list at its top"),
        (answer(numbered(1), Link='<https://other.example/>; rel="next"'), "at another host"),
    ],
)
def test_an_answer_that_is_no_list_is_an_error_of_the_source(site: ListServer, page: Page, error: str) -> None:
    site.pages["/items"] = page

    with pytest.raises(SourceError, match=error):
        Polling("json_list", url=site.url("/items")).poll()


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "file:///etc/passwd"},
        {"every": "1s"},
        {"every": "soon"},
        {"keep_cursor": True},
        {"cursor_parameter": "a&b"},
        {"secret_header": "a b"},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        kinds()["json_list"].clean_settings({"url": "https://api.example/items", **settings})
