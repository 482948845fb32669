"""Triggers and events for the measurement of filters, in a process of its own: `triggers COUNT`, `hostility 0|1`,
`ordinary COUNT RATE` or `hostile COUNT RATE`; the ids of the events go to standard output."""

import json
import sys
import time

import django

django.setup()

from bench.ground.pace import await_word, paced  # noqa: E402
from triggers.accept import Incoming, accept, builtin_source  # noqa: E402
from triggers.models import Trigger  # noqa: E402

LARGE = 24 * 2**20  # bytes, just below what the door takes
# It takes minutes: a regular expression over megabytes, hundreds of times. The library ends what only iterates.
HOURS = (
    f'["{"a" * 100}"]{".map(x, x + x)" * 17}'
    f".all(x, [{','.join('1' * 90)}].all(y, [{','.join('1' * 90)}].all(z, !x.matches('(a|aa)+c'))))"
)
HOSTILE = {
    "hostile-everywhere": (["*"], HOURS),
    "hostile-list": (["hostile.*"], "event.data.items.filter(x, event.data.items.exists(y, y == x + 1)).size() > 3"),
    "hostile-regex": (
        ["hostile.*"],
        'event.data.text.matches("(a*)*(a|aa)+(a+)+$") && event.data.text.matches("(.*a){20}b")',
    ),
}


def triggers(count: int) -> list[str]:
    """One that matches an ordinary event, and others that cannot: half of them of its type."""
    await_word()
    Trigger.objects.all().delete()
    _add("plain", ["bench.seen"], 'event.data.customer == "c3" && event.data.amount > 100')
    Trigger.objects.bulk_create(
        (Trigger(
            slug=f"other-{number}", agent="bench.noop", types=["bench.seen" if number % 2 else f"bench.{number}.*"],
            filter=f'event.data.customer == "x{number}" && event.data.amount > 100',
        )
        for number in range(count - 1)),
        batch_size=1000,
    )  # fmt: skip
    return []


def hostility(is_on: int) -> list[str]:
    await_word()
    Trigger.objects.all().delete()
    _add("plain", ["bench.seen"], 'event.data.customer == "c3"')
    _add("regular-expression", ["bench.seen"], 'event.data.text.matches("(?i)^hello\\\\b.*world$")')
    for slug, (types, filter) in HOSTILE.items() if is_on else ():
        _add(slug, types, filter)
    return []


def ordinary(count: int, rate: float) -> list[str]:
    data = {"customer": "c3", "amount": 120, "text": "hello, world"}
    return [_accept("bench.seen", data) for _ in paced(count, rate)]


def hostile(count: int, rate: float) -> list[str]:
    """In turns: a long list, a long text that makes regular expressions try again, and a payload of a MiB."""
    payloads = (
        {"items": [1] * (LARGE // 3), "text": "a"},
        {"items": [1], "text": "a" * (LARGE - 100)},
        {"items": [1] * (2**20 // 3 - 100), "text": "a"},
    )
    return [_accept("hostile.sent", payloads[number % 3]) for number in paced(count, rate)]


def _add(slug: str, types: list[str], filter: str) -> None:
    Trigger.objects.create(slug=slug, agent="bench.noop", types=types, filter=filter)


def _accept(type: str, data: object) -> str:
    incoming = Incoming(
        source_id=builtin_source("cli"), ce_source="bench", ce_id=str(time.time_ns()), type=type, data=data,
        body=json.dumps(data).encode(),
    )  # fmt: skip
    [accepted] = accept([incoming])
    return str(accepted.event_id)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "ordinary":
        told = ordinary(int(arguments[0]), float(arguments[1]))
    elif command == "hostile":
        told = hostile(int(arguments[0]), float(arguments[1]))
    else:
        told = {"triggers": triggers, "hostility": hostility}[command](int(arguments[0]))
    print(json.dumps(told))
