"""Load for Wakeful, in a process of its own: `fill COUNT`, `pile COUNT TYPE`, `send COUNT RATE`, `answer COUNT`,
`wake NUMBER` or `think COUNT SCRIPT`; what it saw goes to standard output."""

import json
import sys
import time
from dataclasses import replace
from typing import Any

import django
from django.db import transaction

django.setup()

from bench.ground.pace import await_word, paced  # noqa: E402
from bench.probes.accepts import SECRET  # noqa: E402
from runs.models import Wait  # noqa: E402
from triggers.accept import Incoming, accept, builtin_source  # noqa: E402
from triggers.models import Source  # noqa: E402
from triggers.sources.secrets import add_secret  # noqa: E402

KILOBYTE = {"text": "x" * 1000}


def incoming(type: str, id: str) -> Incoming:
    return Incoming(source_id=builtin_source("cli"), ce_source="bench", ce_id=id, type=type, data=KILOBYTE)


def fill(count: int) -> dict[str, Any]:
    """Accept events in one transaction, committed at a word from standard input: the dispatcher sees them all at once."""
    began_at = 0.0

    def stamp() -> None:
        nonlocal began_at
        began_at = time.time()

    tag = str(time.time_ns())
    events = [incoming("bench.noop", f"{tag}-{number}") for number in range(count)]
    with transaction.atomic():
        transaction.on_commit(stamp)
        accept([*events, incoming("bench.last", f"{tag}-last")])
        await_word()
    return {"began_at": began_at, "tag": tag}


def pile(count: int, type: str) -> dict[str, Any]:
    """Events of a type, accepted in one transaction; when it was committed."""
    tag = str(time.time_ns())
    events = [incoming(type, f"{tag}-{number}") for number in range(count)]
    with transaction.atomic():
        accept(events)
        await_word()
    return {"began_at": time.time(), "tag": tag}


def send(count: int, rate: float) -> dict[str, tuple[float, float]]:
    """For each event, when `accept` was called and when it was committed."""
    sent: dict[str, tuple[float, float]] = {}

    def send_one(id: str) -> None:
        called_at = time.time()
        with transaction.atomic():
            # Before `accept`, whose own NOTIFY follows the commit too.
            transaction.on_commit(lambda: sent.update({id: (called_at, time.time())}))
            accept([incoming("bench.ping", id)])

    tag = time.time_ns()
    for number in paced(count, rate):
        send_one(f"{tag}-{number}")
    return sent


def answer(count: int) -> dict[str, Any]:
    """Send a run that waits for one event after the other each of them once it waits; when each was sent, in seconds
    since 1970."""
    name, sent = str(time.time_ns()), []
    await_word()
    data = {"count": count, "name": name, "tells": True}
    [begun] = accept([replace(incoming("bench.listener", name), data=data)])
    for number in range(count):
        while not Wait.objects.filter(
            run__event_ids=[begun.event_id], key=f"event bench.answer#{number + 1}", looked_at__isnull=False
        ).exists():
            time.sleep(0.005)
        time.sleep(0.1)  # everything is asleep again
        sent.append(time.time())
        accept([replace(incoming("bench.answer", f"{name}-{number}"), data={"to": name, "number": number})])
    return {"event": str(begun.event_id), "sent": sent}


def wake(number: int) -> dict[str, float]:
    """An event that every run waits for which waits for that number; when it was sent, in seconds since 1970."""
    await_word()
    sent = time.time()
    accept([replace(incoming("bench.awaited", str(time.time_ns())), data={"number": number})])
    return {"sent": sent}


def think(count: int, script: str) -> dict[str, Any]:
    """Events that each wake a run that thinks."""
    tag = str(time.time_ns())
    events = [replace(incoming("bench.think", f"{tag}-{number}"), data={"script": script}) for number in range(count)]
    await_word()
    accept(events)
    return {"tag": tag}


def open_door() -> None:
    """A source that takes webhooks at /hooks/bench/."""
    source = Source.objects.create(slug="bench", kind="standard_webhooks")
    add_secret(source, SECRET, by="bench")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "open-door":
        open_door()
        sys.exit()
    if command == "think":
        print(json.dumps(think(int(arguments[0]), arguments[1])))
        sys.exit()
    if command == "pile":
        print(json.dumps(pile(int(arguments[0]), arguments[1])))
        sys.exit()
    made = {"fill": fill, "answer": answer, "wake": wake}.get(command)
    print(json.dumps(made(int(arguments[0])) if made else send(int(arguments[0]), float(arguments[1]))))
