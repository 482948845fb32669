"""`search`: pages of searches by each field, through the service of the console and the API. `cost`: what accepting and dispatching
an event takes. JSON to standard output."""

import json
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import django

django.setup()

from bench.ground.pace import await_word  # noqa: E402
from bench.rows.archive import CLUSTERED  # noqa: E402  (it needs the settings)
from runs.db.listen import set_lazy_commits  # noqa: E402
from triggers.accept import Incoming, accept, builtin_source  # noqa: E402
from triggers.dispatch.batch import dispatch  # noqa: E402
from triggers.dispatch.rules import Rules  # noqa: E402
from triggers.events.pages import page_of  # noqa: E402
from triggers.events.search import FieldIs, Search  # noqa: E402
from triggers.models import Event  # noqa: E402

PAGES, SIZE = 15, 50
ACCEPTED, ROUNDS = 2_000, 3


def searches(newest: datetime) -> dict[str, Search]:
    day = Search(start=newest - timedelta(days=20), end=newest - timedelta(days=19))
    return {
        "for nothing: the newest": Search(),
        "by source, of nearly all": Search(source="cli"),
        "by source, of 50": Search(source="manual"),
        "by type, of a fifth": Search(type="order.paid"),
        "by type, of 20": Search(type="order.disputed"),
        f"by type, of the oldest {CLUSTERED:,}": Search(type="legacy.order"),
        f"by types `*.order`, of the oldest {CLUSTERED:,}": Search(type="*.order"),
        "by types `order.*`": Search(type="order.*"),
        "by subject, of 20": Search(subject="customer-4711"),
        "by time: a day, three weeks ago": day,
        "by that day and a type": replace(day, type="stock.counted"),
        "by a field with one event: `id=ord_500001`": by("id=ord_500001"),
        "by a field with 20 events: `customer.id=4711`": by("customer.id=4711"),
        "by a field of a list, 200 events: `items[].sku=sku-77`": by("items[].sku=sku-77"),
        "by a field of a third: `currency=EUR`": by("currency=EUR"),
        "by a field without an event: `customer.id=none`": by("customer.id=none"),
        "by a field and types: `customer.id=4711`, `order.*`": replace(by("customer.id=4711"), type="order.*"),
    }


def by(text: str) -> Search:
    return Search(fields=(FieldIs.parse(text),))


def measure_search(search: Search) -> dict[str, float]:
    """Of pages that follow one another; the only one again and again."""
    took, before = [], None
    for _ in range(PAGES):
        began = time.perf_counter()
        page = page_of(search, size=SIZE, before=before)
        list(Event.objects.filter(pk__in=page.ids).defer("body", "headers"))
        took.append((time.perf_counter() - began) * 1000)
        before = page.before
    return {"first": took[0], "median": sorted(took)[len(took) // 2], "most": max(took)}


def measure_cost() -> dict[str, float]:
    """Microseconds per event of about 800 bytes that no trigger wants, one commit each, then in batches."""
    events = [incoming(number) for number in range(ACCEPTED)]
    rules, began = Rules(), time.perf_counter()
    for event in events:
        accept([event])
    accepted = time.perf_counter()
    while dispatch(rules).dispatched:
        pass
    ended = time.perf_counter()
    return {"accept": (accepted - began) / ACCEPTED * 1e6, "dispatch": (ended - accepted) / ACCEPTED * 1e6}


def incoming(number: int) -> Incoming:
    data = {
        "id": f"ord_{number}", "customer": {"id": number % 5000, "email": f"c{number}@example.com"}, "total": number % 997,
        "currency": "EUR", "note": uuid4().hex * 2,
        "items": [
            {"sku": f"sku-{(number * 31 + n * 7919) % 20000}", "count": n, "price": (number + n) % 500, "text": uuid4().hex}
            for n in range(4)
        ],
    }  # fmt: skip
    own: dict[str, Any] = {"ce_source": "bench", "ce_id": str(uuid4()), "subject": f"customer-{number % 5000}"}
    return Incoming(source_id=builtin_source("cli"), type="bench.unheard", data=data, **own)


def main() -> None:
    await_word()
    if sys.argv[1] == "cost":
        set_lazy_commits()
        measure_cost()
        json.dump([measure_cost() for _ in range(ROUNDS)], sys.stdout)
        return
    newest = Event.objects.order_by("-id").values_list("received_at", flat=True)[0]
    json.dump({what: measure_search(search) for what, search in searches(newest).items()}, sys.stdout)


if __name__ == "__main__":
    main()
