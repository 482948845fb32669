"""Events whose transactions commit late, in any order, or never: an export that is resumed and a replay miss none and repeat none."""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from uuid import UUID

import psycopg
import pytest
from django.core.management import call_command

from tests.support.stack import SHOP, Stack, StackMaker, eventually
from triggers.events.search import Search
from triggers.models import Trigger
from triggers.replays.start import start_replay

pytestmark = pytest.mark.chaos

WRITERS, SECONDS = 6, 15.0
INSERT = """
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data, data_error, headers, body_sha256, root_id, depth)
SELECT made.id, source.id, 'late', made.id::text, 'lab.plain', '', '{}', '', '{}', '', made.id, 0
FROM triggers_source source, (SELECT triggers_uuid7() AS id OFFSET 0) made WHERE source.slug = 'cli'
"""
COMMITTED = "SELECT id, received_at FROM triggers_event WHERE type = 'lab.plain' ORDER BY seq"
REPLAYED = """
SELECT event.id FROM runs_run run JOIN triggers_event event ON event.id = run.event_ids[1] WHERE run.replay_id = %s ORDER BY run.seq
"""
REPLAY = 'SELECT status, "end", dispatched, total FROM triggers_replay WHERE id = %s'


@pytest.fixture
def stack(make_stack: StackMaker) -> Iterator[Stack]:
    yield make_stack(env={**SHOP, "WAKEFUL_APPS": "lab", "WAKEFUL_LOG_LEVEL": "WARNING"}, agents=True)


def write(url: str, ended: Flag, seed: int) -> None:
    """Transactions of one to three events that last up to a second and a half; a fifth of them is rolled back."""
    chance = random.Random(seed)
    with psycopg.connect(url) as session:
        while not ended.is_set():
            for _ in range(chance.randint(1, 3)):
                session.execute(INSERT)
                time.sleep(chance.choice([0, 0.01, 0.5]))
            session.rollback() if chance.random() < 0.2 else session.commit()


def export(stack: Stack, file: Path) -> None:
    with stack.orm():
        call_command("export_events", "--type", "lab.plain", "--output", str(file), "--resume")


@pytest.mark.timeout(240)
def test_an_export_and_a_replay_miss_no_event_that_is_committed_late(stack: Stack, tmp_path: Path) -> None:
    stack.start("dispatcher")
    ended, file = Flag(), tmp_path / "events.ndjson"
    writers = [Thread(target=write, args=(stack.database_url, ended, seed)) for seed in range(WRITERS)]
    for writer in writers:
        writer.start()
    replay, ends = None, time.monotonic() + SECONDS
    while time.monotonic() < ends:
        export(stack, file)
        if replay is None and time.monotonic() > ends - SECONDS / 2:
            with stack.orm():
                plain = Trigger.objects.get(slug="plain")
                replay = start_replay(Search(type="lab.plain"), triggers=[plain], rate=1000, by="test")
    ended.set()
    for writer in writers:
        writer.join()
    export(stack, file)

    committed = stack.query(COMMITTED)
    exported = [UUID(json.loads(line)["wakefulid"]) for line in file.read_bytes().splitlines()]
    assert exported == [row["id"] for row in committed]
    assert replay
    eventually(lambda: stack.query(REPLAY, replay.pk)[0]["status"] == "done", timeout=90)
    [done] = stack.query(REPLAY, replay.pk)
    replayed = [row["id"] for row in stack.query(REPLAYED, replay.pk)]
    assert replayed == [row["id"] for row in committed if row["received_at"] < done["end"]]
    assert len(replayed) == done["dispatched"] >= done["total"] > 0
