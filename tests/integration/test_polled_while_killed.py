"""Feeds, lists and a mailbox are polled while the process that polls is killed again and again: each item is one event, in order."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.imap_server import ImapServer
from tests.support.list_server import ListServer, Page, serving_lists
from tests.support.points import Points
from tests.support.stack import Stack, StackMaker, dead, eventually
from triggers.sources.edit import create_source
from triggers.sources.secrets import add_secret

pytestmark = pytest.mark.chaos

EACH = 70  # new items of a round, more than a page has
PAGE = 50
# In turn: in the transaction that records a poll, and between its commit and the confirmation.
DEATHS = ("source_fenced", "source_recorded", "source_fenced", "source_recorded", "source_fenced")
PAUSE = 15  # seconds that the server asks for, longer than the interval


class World:
    """What there is to poll: the same numbered items as a feed, as a list, as a log, and as mail."""

    def __init__(self, site: ListServer, mail: ImapServer) -> None:
        self.site, self.mail = site, mail
        self.count = 0
        self.publish(3)

    def publish(self, more: int) -> None:
        for number in range(self.count, self.count + more):
            self.mail.add(f"From: bob@example.com\r\nSubject: {number}\r\n\r\nHello".encode())
        self.count += more
        newest = [{"id": f"item-{number}", "number": number} for number in reversed(range(self.count))]
        etag = {"ETag": f'"{self.count}"'}
        for start in range(0, self.count, PAGE):
            end = start + PAGE
            next_page = {"Link": f'<{self.site.url(path(end))}>; rel="next"'} if end < self.count else {}
            body = json.dumps(newest[start:end]).encode()
            self.site.pages[path(start)] = Page(body, headers={**(etag if start == 0 else {}), **next_page})
        self.site.pages["/log"] = self.log_from(0)
        self.site.pages["/feed"] = Page(feed_of(newest), headers=etag)

    def log_from(self, start: int) -> Page:
        """A page of the log, and all pages behind it."""
        end = min(start + PAGE, self.count)
        if start == 0:
            for later in range(PAGE, self.count, PAGE):
                self.site.pages[f"/log?after={later}"] = self.log_from(later)
        items = [{"id": f"item-{number}", "number": number} for number in range(start, end)]
        return Page(json.dumps({"items": items, "next": str(end) if end < self.count else None}).encode())


def path(start: int) -> str:
    return f"/list?from={start}" if start else "/list"


def feed_of(newest: list[dict[str, Any]]) -> bytes:
    items = "".join(f"<item><guid>{one['id']}</guid><title>{one['number']}</title></item>" for one in newest)
    return f'<rss version="2.0"><channel><title>News</title>{items}</channel></rss>'.encode()


@pytest.fixture
def world() -> Iterator[World]:
    mail = ImapServer()
    with serving_lists() as site:
        yield World(site, mail)
    mail.gate.set()
    mail.close()


def add_sources(stack: Stack, world: World) -> None:
    often = {"every": "10s", "begin_with": "all"}
    log = {"items_path": "items", "next_path": "next", "cursor_parameter": "after", "order": "oldest first"}
    mail = {"host": "127.0.0.1", "port": world.mail.port, "user": world.mail.user, "tls": "none"}
    with stack.orm():
        create_source("feed", kind="feed", settings={**often, "url": world.site.url("/feed")}, by="test")
        create_source("list", kind="json_list", settings={**often, "url": world.site.url("/list")}, by="test")
        settings = {**often, **log, "url": world.site.url("/log"), "keep_cursor": True}
        create_source("log", kind="json_list", settings=settings, by="test")
        add_secret(
            create_source("mail", kind="imap", settings={**often, **mail}, by="test"), world.mail.password, by="test"
        )


NUMBER = {
    "feed": "data->>'title'",
    "list": "data->>'number'",
    "log": "data->>'number'",
    "mail": "data->>'subject'",
}


def numbers(stack: Stack, slug: str) -> list[int]:
    sql = f"""SELECT ({NUMBER[slug]})::int AS number FROM triggers_event event
              JOIN triggers_source source ON source.id = event.source_id WHERE source.slug = %s ORDER BY event.seq"""
    return [row["number"] for row in stack.query(sql, slug)]


def are_all_recorded(stack: Stack, world: World) -> bool:
    return all(len(numbers(stack, slug)) >= world.count for slug in NUMBER)


def test_each_item_is_one_event_in_order_while_the_process_that_polls_is_killed(
    make_stack: StackMaker, tmp_path: Path, world: World
) -> None:
    points = Points(tmp_path / "points")
    stack = make_stack(env={**points.env, "WAKEFUL_HTTP_NETWORKS": "127.0.0.0/8"})
    add_sources(stack, world)
    stack.start("dispatcher")
    runners = [stack.start("sources"), stack.start("sources")]
    eventually(lambda: are_all_recorded(stack, world))

    for point in DEATHS:
        points.arm(point, "kill")
        world.publish(EACH)
        eventually(lambda: dead(runners))
        points.release_all()
        for process in dead(runners):
            process.restart(wait=False)
        eventually(lambda: are_all_recorded(stack, world))

    for slug in NUMBER:
        assert numbers(stack, slug) == list(range(world.count)), slug
    assert not any(message.flags for message in world.mail.messages.values())
    assert any("if-none-match" in headers for _, headers in world.site.asked)
    assert not stack.query("SELECT reason FROM triggers_poisonmessage")


def test_a_server_that_requests_a_pause_gets_it(make_stack: StackMaker, world: World) -> None:
    stack = make_stack(env={"WAKEFUL_HTTP_NETWORKS": "127.0.0.0/8"})
    busy = Page(status=503, headers={"Retry-After": str(PAUSE)})
    world.site.pages = {"/list": busy}
    with stack.orm():
        settings = {"every": "10s", "begin_with": "all", "url": world.site.url("/list")}
        create_source("list", kind="json_list", settings=settings, by="test")
    stack.start("sources")

    eventually(lambda: world.site.paths)
    asked_at = time.monotonic()
    world.publish(1)
    eventually(lambda: numbers(stack, "list"))

    assert time.monotonic() - asked_at > PAUSE - 1
    assert numbers(stack, "list") == list(range(world.count))
