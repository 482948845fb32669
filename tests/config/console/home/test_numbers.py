"""Each number of the first page is a link, and opens a list of exactly what it counts."""

import re
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any
from uuid import UUID

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from runs.actions.incidents import mute_incident
from runs.models import NIL, Delivery, Incident, Notification, Run, Worker
from tests.support.console import (
    context_of,
    make_failed_run,
    make_incident,
    make_one_of_each,
    make_schedule,
    make_worker,
)
from tests.support.journals import make_approval
from tests.support.old_rows import ago, id_of, old_event
from tests.support.runs import make_run
from tests.support.triggers import hold, make_event, make_trigger
from triggers.models import Decision, Skip, Trigger

pytestmark = pytest.mark.django_db
HOME = "/admin/home/"
# What may have digits and counts nothing: times, headings, names, and what others wrote.
WORDS = {"time", "title", "h1", "h2"}
EMPTY = {"rect", "line", "br", "input"}
CLASSES = {"moment-ago", "home-arguments", "arguments", "home-hour", "home-mark", "home-free"}
# Addresses of pages that name the number, and how; the others are those of lists.
NAMES_IT = {
    "/why/": r"Missed in the last day: (\d+)",
    "/change/": r"Failures (\d+)",
    "/agents/": r"(\d+) agents, \d+ of them",
    "/overnight/": r"Quiet ({count}) gates|({count}) model requests",
}


class Numbers(HTMLParser):
    """The links with a count, and the texts with digits that are outside of any link."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[tuple[int, str]] = []
        self.loose: list[str] = []
        self.around: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag == "a" and given.get("data-count") is not None:
            self.links.append((int(given["data-count"] or 0), given["href"] or ""))
        is_known = (
            tag == "a" or tag == "button" or tag in WORDS or bool(CLASSES & {*(given.get("class") or "").split()})
        )
        if tag not in EMPTY:
            self.around.append((tag, is_known))

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self.around.pop()[0] == tag

    def handle_data(self, text: str) -> None:
        if re.search(r"\d", text) and not any(is_known for _, is_known in self.around):
            self.loose.append(text.strip())


def read(client: Client) -> Numbers:
    numbers = Numbers()
    numbers.feed(client.get(HOME).content.decode())
    return numbers


def counted(client: Client, url: str, count: int) -> int:
    """The rows of the list behind an address, or the number that the page there names."""
    if not any(place in url for place in NAMES_IT):
        return int(context_of(client, url)["cl"].result_count)
    answer = client.get(url)
    assert answer.status_code == 200, url
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))
    shape = next(shape for place, shape in NAMES_IT.items() if place in url)
    found = re.search(shape.format(count=count), text)
    assert found, (url, count, text[:2000])
    return int(next(group for group in found.groups() if group))


def came(**span: Any) -> UUID:
    """The id of an event that came so long ago."""
    return id_of(ago(**span))


def run_of(trigger: Trigger, status: str, event_id: UUID, **fields: Any) -> Run:
    now = timezone.now()
    is_over = status in ("succeeded", "failed", "cancelled")
    times = {"started_at": now - timedelta(seconds=2), "finished_at": now} if is_over else {}
    whose = {"trigger": trigger.slug, "trigger_id": trigger.pk, "agent": trigger.agent}
    return make_run(status=status, event_id=event_id, **{**whose, **times, **fields})


@pytest.fixture
def busy(admin: Client) -> Client:
    """A home page with something of each sort."""
    now = timezone.now()
    for number in range(1, 3):
        make_one_of_each(number)
    make_worker(version="2.0")
    make_worker("dispatcher")
    sync, other = make_trigger("order-sync", agent="greeter"), make_trigger("order-copy", agent="greeter")
    for number in range(70):
        run_of(sync, ("failed", "succeeded", "cancelled")[number % 3], came(minutes=10 * number), error="no")
        run_of(other, "succeeded", came(hours=24, minutes=10 * number))
    worker = make_worker()
    for number in range(4):
        owned = {"worker": worker, "pid": number + 2, "claimed_at": Now(), "deadline_at": Now()}
        run_of(sync, "running", came(minutes=number), **owned)
        child = run_of(sync, "succeeded", came(minutes=number))
        Run.objects.filter(pk=child.pk).update(trigger="", trigger_id=None, parent_id=child.pk, root_id=child.pk)
        make_run(status="waiting")
        make_run(status="uncertain")
        make_run(status="queued", ready_at=None, due_at=now + timedelta(hours=1))
        make_approval(make_run(status="waiting"), status="open")
    covered = [make_failed_run(sync) for _ in range(3)]
    make_incident("order-sync", *covered, count=9, in_a_row=2, urgency="high")
    muted = make_incident("order-copy", make_failed_run(other))
    mute_incident(muted.pk, until="version", by="ada")
    make_failed_run(other)
    Incident.objects.create(
        kind="source",
        subject="shop",
        name="shop",
        fingerprint="g",
        cause="signature",
        opened_at=now,
        count=7,
        in_a_row=7,
    )
    paused = make_trigger("payment-post", agent="greeter")
    Trigger.objects.filter(pk=paused.pk).update(paused_at=now)
    for number in range(6):
        hold(old_event(ago(minutes=number, seconds=30)), paused)
        for hours in (1, 30):
            Decision.objects.create(event=old_event(ago(hours=hours)), trigger=sync, replay_id=NIL, outcome="quiet")
        make_event()
    schedule = make_schedule("nightly")
    Skip.objects.create(schedule=schedule, reason="missed", first=now - timedelta(hours=3), last=now, count=3)
    Skip.objects.create(schedule=schedule, reason="paused", first=now, last=now + timedelta(hours=1), count=4)
    held = Notification.objects.create(sender="greeter", text="later", planned_at=now)
    for _ in range(3):
        Delivery.objects.create(
            notification=held, name="ops", status="held", reason="quiet hours", due_at=now + timedelta(hours=3)
        )
    # They stay alive however long the pages take.
    Worker.objects.filter(stopped_at=None).update(seen_at=now + timedelta(hours=1))
    return admin


def test_each_number_opens_exactly_the_list_that_it_counted(busy: Client) -> None:
    found = read(busy)

    assert len(found.links) > 60
    unlike = [(count, url, there) for count, url in found.links if (there := counted(busy, url, count)) != count]

    assert unlike == []


def test_no_number_stands_outside_of_a_link(busy: Client) -> None:
    loose = read(busy).loose

    assert not loose, "\n".join(loose)


def test_each_sort_of_number_is_there(busy: Client) -> None:
    urls = " ".join(url for _, url in read(busy).links)

    sorts = (
        "start=", "started=", "status__exact=failed&", "status__exact=running", "status__exact=waiting",
        "status__exact=uncertain", "last=marks%3Atrigger", "last=marks%3Aagent", "last=rate%3A", "last=times%3A",
        "incident=", "muted=no", "held=payment-post", "state=undispatched", "state=alive", "/why/", "/overnight/",
        "status=failing", "status=muted", "delivery/?status__exact=held", "approval/", "place=due", "agents/",
        "/incident/",
    )  # fmt: skip
    assert [one for one in sorts if one not in urls] == []


def test_the_strip_of_a_name_that_is_not_there_is_empty(busy: Client) -> None:
    for value in ("marks:trigger:gone", "x:trigger:order-sync", "marks:x:y", "marks:", ":", "\0:", "marks:trigger:\0"):
        assert busy.get("/admin/runs/run/", {"last": value}).status_code in (200, 302)
