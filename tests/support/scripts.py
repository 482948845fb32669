"""A kind of source that reads what a test has written down, and the loop of `manage.py sources` step by step."""

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.stack import PATIENCE
from triggers.models import Source
from triggers.sources.continuity import Gaps
from triggers.sources.process.loop import Sources
from triggers.sources.process.reader_thread import Failure, Handover
from triggers.sources.runner import Assignment, Batch, Broker, Reader, Received


class Script(Broker[Any]):
    """Batches, and exceptions in their place, in the order in which its readers come to them."""

    name = "script"
    label = "Script"
    gaps = Gaps(are_seen=True, how="it numbers its messages.")

    def __init__(self, *pages: Batch | Exception) -> None:
        self.pages = list(pages)
        self.assignments: list[Assignment[Any]] = []
        self.confirmed: list[Batch] = []

    def clean_settings(self, settings: Any) -> Any:
        return settings

    def connect(self, assignment: Assignment[Any]) -> Reader:
        self.assignments.append(assignment)
        return ScriptReader(self)


class ScriptReader(Reader):
    def __init__(self, script: Script) -> None:
        self.script = script

    def read(self, wait: float) -> Batch:
        if not self.script.pages:
            time.sleep(0.01)
            return Batch()
        page = self.script.pages.pop(0)
        if isinstance(page, Exception):
            raise page
        return page

    def confirm(self, batch: Batch) -> None:
        self.script.confirmed.append(batch)


def message(number: int, **fields: Any) -> Received:
    return Received(**{"id": str(number), "type": "order.placed", "subject": "ada", **fields})


def make_source(slug: str = "orders", **fields: Any) -> Source:
    return Source.objects.create(slug=slug, **{"kind": "script", **fields})


def step(process: Sources) -> Handover | Failure | None:
    """One look, and what a thread has handed over meanwhile; it is not taken in yet."""
    process.look()
    try:
        return process.inbox.get(timeout=0.02)
    except queue.Empty:
        return None


def run_until(process: Sources, is_done: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_done():
        assert time.monotonic() < deadline
        if item := step(process):
            process.take_in(item)


def handed_over(process: Sources) -> Handover:
    """The next batch with messages, not recorded yet."""
    found: list[Handover] = []

    def look() -> bool:
        item = step(process)
        if isinstance(item, Handover) and item.batch.messages:
            found.append(item)
        elif item:
            process.take_in(item)
        return bool(found)

    deadline = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < deadline
    return found[0]


@contextmanager
def processes(count: int = 1) -> Iterator[list[Sources]]:
    made = [Sources() for _ in range(count)]
    try:
        yield made
    finally:
        for process in made:
            for thread in process.threads.values():
                thread.end()
