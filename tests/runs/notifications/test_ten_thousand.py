"""10,000 notifications for 50 recipients under their rules: what is sent, merged, held and suppressed adds up, and each message
arrives once."""

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from runs.models import Delivery, Notification, RecipientGroup
from runs.notifications.deliver import Deliverer
from runs.notifications.plan import plan
from tests.support.notifying import delivered, make_due, make_recipient, quiet_now
from tests.support.post_office import HookServer, taking_hooks

pytestmark = [pytest.mark.django_db(transaction=True, serialized_rollback=True), pytest.mark.chaos]
MANY = 10_000


@pytest.fixture
def hooks() -> Iterator[list[HookServer]]:
    with taking_hooks() as one, taking_hooks() as two:
        yield [one, two]


def test_ten_thousand_for_fifty_add_up(hooks: list[HookServer], capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(7)
    rules: list[dict[str, Any]] = [
        {},
        {"spacing": timedelta(minutes=30)},
        {"digest_hour": 8, "zone": "Europe/Vienna"},
        {**quiet_now(), "spacing": timedelta(minutes=30)},
        {"least_urgency": "high"},
    ]
    people = [
        make_recipient(f"r{n}", "inbox:a" if n % 2 else f"{hooks[n % 4 // 2].url}/{n}", **rules[n % 5])
        for n in range(50)
    ]
    RecipientGroup.objects.create(name="office").members.set(people[:10])
    Notification.objects.bulk_create(
        [
            Notification(
                sender="greeter",
                text=f"text {chance.randrange(40)}" if n % 3 == 0 else f"text {n} of its own",
                topic=f"topic {chance.randrange(100)}" if n % 3 == 0 else "",
                urgency=chance.choices(["low", "normal", "high"], [4, 5, 1])[0],
                to=["office"] if n % 20 == 0 else [f"r{n % 50}"],
            )
            for n in range(MANY)
        ],
        batch_size=1000,
    )
    wanted = sum(10 if notification.to == ["office"] else 1 for notification in Notification.objects.only("to"))

    began = time.monotonic()
    while plan():
        pass
    planned_in = time.monotonic() - began
    planned = Counter(Delivery.objects.values_list("status", flat=True))
    began = time.monotonic()
    deliverer = delivered(Deliverer())
    make_due()  # the night is over
    delivered(deliverer)
    sent_in = time.monotonic() - began

    assert planned.total() == wanted
    final = Counter(Delivery.objects.values_list("status", flat=True))
    assert set(final) == {"sent", "merged", "suppressed"}
    assert final["sent"] == planned["pending"] + planned["held"]
    assert (final["merged"], final["suppressed"]) == (planned["merged"], planned["suppressed"])
    by_recipient: dict[str, Counter[str]] = defaultdict(Counter)
    for name, status in Delivery.objects.values_list("name", "status"):
        by_recipient[name][status] += 1
    for n, person in enumerate(people):
        counts = by_recipient[person.name]
        addressed = Notification.objects.filter(to=[person.name]).count()
        addressed += Notification.objects.filter(to=["office"]).count() if n < 10 else 0
        assert counts.total() == addressed, person.name

    ids = [one for server in hooks for one in server.ids]
    assert len(ids) == len(set(ids)) == Delivery.objects.filter(status="sent", channel="webhook").count()
    carried = [
        (posted.path, notification["id"])
        for server in hooks
        for posted in server.posted
        for notification in json.loads(posted.body)["data"]["notifications"]
    ]
    through_hooks = Delivery.objects.filter(channel="webhook", status__in=["sent", "merged"])
    assert len(carried) == len(set(carried)) == through_hooks.count()
    with capsys.disabled():
        print(
            f"\n{wanted} deliveries planned in {planned_in:.1f} s ({wanted / planned_in:.0f}/s), {final['sent']} messages sent "
            f"in {sent_in:.1f} s ({final['sent'] / sent_in:.0f}/s): {dict(planned)}"
        )
