"""What senders do: signed webhooks, events over the API, duplicates of both, and a history of the answers."""

import hmac
import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from tests.support.stack import Stack

LEAST = 40  # events of a seed
GIVE_UP = 90.0  # seconds a sender goes on trying
BY_API = ("lab.slow", "lab.flaky", "lab.batched", "lab.joining", "lab.narrow", "lab.asking", "lab.reply")
UNHEARD = (OSError, http.client.HTTPException)


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """An event as its sender knows it; sent again, it has the same id."""

    id: str
    type: str
    data: Mapping[str, Any]
    door: str = "webhook"


class History:
    """One line for each answer of a sender, with its time."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.file.touch()
        self._lock = threading.Lock()

    def tell(self, **what: Any) -> None:
        with self._lock, self.file.open("a") as lines:
            lines.write(json.dumps({"at": round(time.time(), 3), **what}) + "\n")

    def accepted(self) -> list[UUID]:
        """The events that were acknowledged to senders."""
        lines = map(json.loads, self.file.read_text().splitlines())
        return sorted({UUID(line["event"]) for line in lines if line.get("event")})


@dataclass
class Senders:
    """Threads that send until everything is accepted; `close` waits for them."""

    stack: Stack
    history: History
    seed: int
    secret: bytes
    since: datetime  # by the database's clock
    threads: list[threading.Thread] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)  # delivery id → event id
    firsts: Counter[str] = field(default_factory=Counter)

    def send(self, deliveries: Sequence[Delivery], *, pause: Callable[[], float] = lambda: 0.0) -> None:
        """One after the other: the next is sent once the one before has been accepted."""
        thread = threading.Thread(target=self._send, args=(deliveries, pause), daemon=True)
        self.threads.append(thread)
        thread.start()

    def close(self) -> None:
        for thread in self.threads:
            thread.join(timeout=GIVE_UP + 10)
        self.threads.clear()

    def is_done(self) -> bool:
        return not any(thread.is_alive() for thread in self.threads)

    def _send(self, deliveries: Sequence[Delivery], pause: Callable[[], float]) -> None:
        for delivery in deliveries:
            time.sleep(pause())
            self.until_accepted(delivery)

    def until_accepted(self, delivery: Delivery) -> str:
        """The event's id; a sender that gets no answer, or an error, sends the same again."""
        give_up_at = time.monotonic() + GIVE_UP
        while time.monotonic() < give_up_at:
            event = self.once(delivery)
            if event:
                return event
            time.sleep(0.2)
        self.failures.append(f"{delivery.id} was not accepted within {GIVE_UP:.0f} s")
        return ""

    def once(self, delivery: Delivery) -> str:
        try:
            answer = (self._hook if delivery.door == "webhook" else self._api)(delivery)
        except UNHEARD as error:
            self.history.tell(seed=self.seed, id=delivery.id, door=delivery.door, error=type(error).__name__)
            return ""
        content = answer.json() if answer.status in (200, 202) else {}
        self.history.tell(seed=self.seed, id=delivery.id, door=delivery.door, status=answer.status, **content)
        if 400 <= answer.status < 500:
            self.failures.append(f"{delivery.id} was refused: {answer.status} {answer.body[:200]!r}")
            return "refused"
        if event := content.get("event", ""):
            known = self.told.setdefault(delivery.id, event)
            if known != event:
                self.failures.append(f"{delivery.id} is event {known}, and then {event}")
            if not content["duplicate"]:
                self.firsts[delivery.id] += 1
                if self.firsts[delivery.id] > 1:
                    self.failures.append(f"{delivery.id} was new twice")
        return str(event)

    def _hook(self, delivery: Delivery) -> Any:
        body = json.dumps({"id": delivery.id, "type": delivery.type, **delivery.data}).encode()
        signature = hmac.digest(self.secret, body, "sha256").hex()
        headers = {"Content-Type": "application/json", "X-Signature": signature}
        return self.stack.request("POST", "/hooks/lab/", body=body, headers=headers, timeout=6)

    def _api(self, delivery: Delivery) -> Any:
        event = {"specversion": "1.0", "id": delivery.id, "source": "lab", "type": delivery.type, "data": delivery.data}
        headers = {
            "Authorization": f"Bearer {self.stack.env['WAKEFUL_API_TOKEN']}",
            "Content-Type": "application/cloudevents+json",
        }
        body = json.dumps(event).encode()
        return self.stack.request("POST", "/api/v1/events/", body=body, headers=headers, timeout=6)


def lab_load(seed: int, random: Random) -> Iterator[list[Delivery]]:
    """What each sender of a seed sends, in order; a third comes twice, at once or later."""

    def delivery(type: str, number: int, **data: Any) -> Delivery:
        door = "api" if type in BY_API else "webhook"
        return Delivery(
            id=f"{seed}-{type}-{data.get('key', '')}-{number}", type=type, data={"number": number, **data}, door=door
        )

    mixed = [
        *[delivery("lab.plain", number) for number in range(8)],
        *[delivery("lab.single", number, key=f"{seed}-s{number % 2}") for number in range(8)],
        *[delivery("lab.flaky", number) for number in range(3)],
        *[delivery("lab.slow", number, seconds=random.choice([0.1, 0.2, 0.4])) for number in range(6)],
        *[delivery("lab.batched", number) for number in range(8)],
        *[delivery("lab.pooled", number, key=f"{seed}-p") for number in range(9)],
        *[delivery("lab.joining", number, key=f"{seed}-j") for number in range(6)],
        *[delivery("lab.replacing", number, key=f"{seed}-r") for number in range(5)],
        *[delivery("lab.rated", number) for number in range(6)],
        *[delivery("lab.settled", number, key=f"{seed}-d{number % 2}") for number in range(6)],
        *[delivery("lab.narrow", number) for number in range(5)],
        *[delivery("lab.stepping", number) for number in range(5)],
        *[delivery("lab.asking", number) for number in range(4)],
        *[delivery("lab.family", number) for number in range(2)],
        delivery("lab.doomed", 0),
        delivery("lab.late", 0),
    ]
    random.shuffle(mixed)
    yield from (with_duplicates(mixed[start::4], random) for start in range(4))
    for key in range(3):
        yield with_duplicates([delivery("lab.ordered", number, key=f"{seed}-o{key}") for number in range(8)], random)
    yield with_duplicates([delivery("lab.wavering", number, key=f"{seed}-w") for number in range(4)], random)
    # A run waits for two replies; the third of them gets only one. They come at once, or when it is waited for.
    for of in range(3):
        replies = [
            delivery("lab.reply", number, key=str(of), to={"of": f"{seed}-{of}", "reply": number})
            for number in range(1 if of == 2 else 2)
        ]
        yield [delivery("lab.patient", of, of=f"{seed}-{of}"), *with_duplicates(replies, random)]


def with_duplicates(deliveries: Sequence[Delivery], random: Random) -> list[Delivery]:
    """A third of them again, right behind or at the end."""
    sent: list[Delivery] = []
    later: list[Delivery] = []
    for delivery in deliveries:
        sent.append(delivery)
        if random.random() < 1 / 3:
            (sent if random.random() < 0.5 else later).append(delivery)
    return sent + later


def users_load(seed: int, file: Path, random: Random) -> Iterator[list[Delivery]]:
    """The events of a file of JSON lines {"type": …, "data": …}, over and over until there are LEAST, by three senders."""
    given = [json.loads(line) for line in file.read_text().splitlines() if line]
    lines = given * max(1, LEAST // len(given))
    deliveries = [
        Delivery(id=f"{seed}-{number}", type=line["type"], data=line.get("data") or {}, door="api")
        for number, line in enumerate(lines)
    ]
    yield from (with_duplicates(deliveries[start::3], random) for start in range(3))
