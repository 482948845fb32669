"""Feeds from a real server: each item once, and a server that behaves badly is bounded."""

import threading
import time
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from tests.support.list_server import ListServer, Page, serving_lists
from tests.triggers.sources.polling.conftest import Polling
from triggers.sources.polling import conditional_get, feed, feed_parser
from triggers.sources.polling.conditional_get import TURNOVER
from triggers.sources.polling.feed import items_of
from triggers.sources.runner import Batch, Received, SourceError


def rss(*names: str, ids: str = "{}") -> bytes:
    entries = "".join(
        f"<item><title>{name}</title><guid isPermaLink='false'>{ids.format(name)}</guid><link>/about/{name}</link>"
        f"<description>&lt;p&gt;All about &lt;b&gt;{name}&lt;/b&gt;&lt;/p&gt;</description></item>"
        for name in names
    )
    return f"<rss version='2.0'><channel><title>News</title>{entries}</channel></rss>".encode()


ATOM = b"""<feed xmlns="http://www.w3.org/2005/Atom"><title>News</title>
<entry><id>urn:2</id><title type="html">&lt;i&gt;Second&lt;/i&gt; one</title><link href="https://other.example/2"/>
<published>2026-11-20T10:00:00+01:00</published><author><name>Anna</name></author><category term="news"/>
<content type="html">&lt;h1&gt;Big&lt;/h1&gt;&lt;p&gt;text\xc3\xa4&lt;script&gt;alert(1)&lt;/script&gt;&lt;/p&gt;</content></entry>
<entry><id>urn:1</id><title>First</title><published>2026-11-19T10:00:00Z</published></entry></feed>"""


def ids(batch: Batch) -> list[str]:
    return [message.id for message in batch.messages if isinstance(message, Received)]


def test_each_item_is_one_event_the_oldest_first(site: ListServer) -> None:
    site.pages["/feed"] = Page(rss("b", "a"))
    source = Polling("feed", url=site.url("/feed"), begin_with="all")

    first = source.poll()
    site.pages["/feed"] = Page(rss("d", "c", "b", "a"))
    second, third = source.poll(), source.poll()

    assert (ids(first), ids(second), ids(third)) == (["a", "b"], ["c", "d"], [])
    [message, _] = first.messages
    assert isinstance(message, Received)
    assert message.subject == site.url("/about/a")
    assert message.payload.data["text"] == "All about a"


def test_items_of_the_first_poll_are_skipped_by_default(site: ListServer) -> None:
    site.pages["/feed"] = Page(rss("b", "a"))
    source = Polling("feed", url=site.url("/feed"))

    first = source.poll()
    site.pages["/feed"] = Page(rss("c", "b"))

    assert (ids(first), ids(source.poll())) == ([], ["c"])


def test_atom_is_read_as_text_in_order_of_time() -> None:
    first, second = items_of(ATOM, "https://news.example/feed")

    assert (first.id, second.id) == ("urn:1", "urn:2")
    assert second.value == {
        "id": "urn:2",
        "title": "Second one",
        "link": "https://other.example/2",
        "author": "Anna",
        "published": "2026-11-20T09:00:00+00:00",
        "updated": None,
        "text": "Big\n\ntextä",
        "tags": ["news"],
        "files": [],
    }


def test_a_feed_that_has_not_changed_is_not_sent_again(site: ListServer) -> None:
    site.pages["/feed"] = Page(rss("a"), headers={"ETag": '"1"', "Last-Modified": "Fri, 20 Nov 2026 10:00:00 GMT"})
    source = Polling("feed", url=site.url("/feed"), begin_with="all")

    source.poll()
    source.poll()
    state = source.position["state"]

    assert [headers.get("if-none-match") for _, headers in site.asked] == [None, '"1"']
    assert site.asked[1][1]["if-modified-since"] == "Fri, 20 Nov 2026 10:00:00 GMT"
    site.pages["/feed"] = Page(rss("a", "b"), headers={"ETag": '"2"'})
    assert ids(source.poll()) == ["b"]
    assert state["memory"]["latest"] == 1


def test_a_feed_that_is_known_by_its_content_may_have_other_ids_at_every_fetch(site: ListServer) -> None:
    source = Polling("feed", url=site.url("/feed"), known_by="content")
    polled = []
    for turn in range(3):
        site.pages["/feed"] = Page(rss("b", "a", ids=f"{turn}-{{}}"))
        polled += ids(source.poll())

    assert polled == []


def test_a_poll_without_any_known_item_is_a_gap(site: ListServer) -> None:
    source = Polling("feed", url=site.url("/feed"))
    site.pages["/feed"] = Page(rss("b", "a"))
    source.poll()
    site.pages["/feed"] = Page(rss("d", "c"))

    batch = source.poll()

    assert [type(message) for message in batch.messages] == [Received, Received]
    assert [gap.detail for gap in batch.gaps] == [TURNOVER]


@pytest.mark.parametrize(("every", "open_for"), [("10s", timedelta(hours=1)), ("2h", timedelta(hours=3))])
def test_a_list_that_turns_over_at_each_poll_has_one_gap(site: ListServer, every: str, open_for: timedelta) -> None:
    source = Polling("feed", url=site.url("/feed"), every=every)
    site.pages["/feed"] = Page(rss("b", "a"))
    source.poll()
    site.pages["/feed"] = Page(rss("d", "c"))

    assert [gap.open_for for gap in source.poll().gaps] == [open_for]


def test_another_process_waits_until_the_poll_is_due(site: ListServer) -> None:
    site.pages["/feed"] = Page(rss("a"))
    source = Polling("feed", url=site.url("/feed"), every="1h")
    source.poll()

    waiting = source.reader().read(0.1)

    assert len(site.asked) == 1
    assert timedelta(minutes=53) < waiting.next_in <= timedelta(minutes=66)
    assert waiting.position is None


def test_another_address_begins_from_the_start(site: ListServer) -> None:
    site.pages |= {"/one": Page(rss("a")), "/two": Page(rss("b"))}
    source = Polling("feed", url=site.url("/one"))
    source.poll()
    other = Polling("feed", url=site.url("/two"))
    other.position = source.position

    assert ids(other.poll()) == []
    assert len(site.asked) == 2


@pytest.mark.parametrize(
    ("page", "error"),
    [
        (Page(b"<html><body>no feed</body></html>"), "no RSS or Atom feed"),
        (Page(b"hello"), "no RSS or Atom feed"),
        (Page(status=404), "404 Not Found"),
        (Page(status=500), "500 Internal Server Error"),
        (Page(status=302, headers={"Location": "http://10.0.0.1/"}), "not a public one"),
        (Page(status=302, headers={"Location": "/feed"}), "more than 3 redirects"),
        (Page(headers={"Content-Encoding": "br"}), "encoded"),
    ],
)
def test_an_answer_that_is_no_feed_is_an_error_of_the_source(site: ListServer, page: Page, error: str) -> None:
    site.pages["/feed"] = page

    with pytest.raises(SourceError, match=error):
        Polling("feed", url=site.url("/feed")).poll()


@pytest.mark.parametrize("manner", ["endless", "silent", "drip"])
def test_a_server_that_is_slow_or_never_ends_is_left(site: ListServer, manner: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(conditional_get, "REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(feed, "MOST_BYTES", 100_000)
    site.pages["/feed"] = Page(b"x" * 10_000, manner=manner)

    began = time.monotonic()
    with pytest.raises(SourceError, match="larger than 100,000 bytes|within 0.5 s"):
        Polling("feed", url=site.url("/feed")).poll()

    assert time.monotonic() - began < 25  # without a limit, half a minute


def test_the_server_shows_when_to_ask_again(site: ListServer) -> None:
    site.pages["/feed"] = Page(status=429, headers={"Retry-After": "120"})

    with pytest.raises(SourceError) as refused:
        Polling("feed", url=site.url("/feed")).poll()

    assert refused.value.retry_after == timedelta(seconds=120)


def test_the_secret_goes_to_the_first_origin_alone(site: ListServer) -> None:
    source = Polling("feed", url=site.url("/feed"), secret="s3cret", secret_header="X-Key", secret_prefix="")
    with serving_lists() as other:
        site.pages["/feed"] = Page(status=302, headers={"Location": other.url("/moved")})
        other.pages["/moved"] = Page(rss("a"))
        source.poll()

    assert site.asked[0][1]["x-key"] == "s3cret"
    assert "x-key" not in other.asked[0][1]


def test_an_address_inside_is_refused(site: ListServer, settings: Any) -> None:
    settings.WAKEFUL_HTTP_NETWORKS = []

    with pytest.raises(SourceError, match="not a public one") as refused:
        Polling("feed", url=site.url("/feed")).poll()

    assert "WAKEFUL_HTTP_NETWORKS" in refused.value.remedy
    assert not site.asked


@pytest.mark.parametrize(
    "body",
    [
        b"<rss version='2.0'><channel>" + b"<item>" * 5_000,
        b"<rss version='2.0'><channel><item><description>"
        + b"&lt;!--" * 50_000
        + b"</description></item></channel></rss>",
        b'<!DOCTYPE r [<!ENTITY a "'
        + b"x" * 1000
        + b'"><!ENTITY b "'
        + b"&a;" * 1000
        + b'">]><rss version="2.0"><channel>'
        b"<item><title>&b;</title></item></channel></rss>",
        b'<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]><rss version="2.0"><channel><item>'
        b"<title>&a;</title></item></channel></rss>",
        b"<rss version='2.0'><channel><item><guid>\x00\xed\xa0\x80</guid><pubDate>99999-99-99</pubDate></item></channel></rss>",
    ],
)
def test_a_hostile_feed_is_bounded(body: bytes) -> None:
    found = items_of(body, "https://news.example/feed")

    assert len(found) <= feed_parser.MOST_ITEMS
    assert not any("root:" in str(item.value) for item in found)


def test_a_feed_over_its_limits_stops_no_other_source_and_is_polled_at_its_interval(
    site: ListServer, monkeypatch: Any
) -> None:
    monkeypatch.setattr(feed, "SECONDS", 1)
    # The parser searches its name for an address, which is quadratic, and holds the GIL meanwhile.
    author = b"<item><author>" + b"a" * 400_000 + b"</author></item>"
    site.pages["/feed"] = Page(b"<rss version='2.0'><channel>" + author + b"</channel></rss>")
    turns = count()
    is_over = threading.Event()
    other = threading.Thread(target=lambda: [next(turns) for _ in iter(lambda: is_over.wait(0.01), True)])
    other.start()

    with pytest.raises(SourceError, match="limits of time and memory") as error:
        Polling("feed", url=site.url("/feed"), every="1h").poll()

    is_over.set()
    other.join()
    assert error.value.retry_after == timedelta(hours=1)
    assert next(turns) > 10
