"""Ten thousand events are replayed at their rate by a real dispatcher, each once, whichever way the dispatcher dies."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.support.stack import SHOP, Stack, StackMaker, eventually
from triggers.models import Replay
from triggers.replays.control import cancel_replay, pause_replay

pytestmark = pytest.mark.chaos

ARCHIVE = """
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data, data_error, headers, body_sha256,
                            received_at, dispatched_at, root_id, depth)
SELECT made.id, source.id, 'past', n::text, 'lab.plain', '', jsonb_build_object('n', n), '', '{}', '', moment, moment, made.id, 0
FROM (SELECT id FROM triggers_source WHERE slug = 'cli') source, generate_series(1, %s::int) n,
LATERAL (SELECT now() - interval '1 day' + n * interval '1 second' AS moment) at,
LATERAL (SELECT (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '7'
                 || substr(md5(n::text), 1, 3) || 'a' || substr(md5(n::text), 4, 15))::uuid AS id) made
RETURNING id
"""
TAKEN = """
SELECT status, dispatched, extract(epoch FROM clock_timestamp())::float8 AS at FROM triggers_replay ORDER BY id DESC LIMIT 1
"""
RUNS = """
SELECT count(*) AS runs, count(DISTINCT event_ids) AS events,
  (SELECT count(*) FROM (SELECT seq, lag(seq) OVER (ORDER BY event_ids) AS before FROM runs_run) run WHERE seq < before) AS disordered
FROM runs_run
"""


@pytest.fixture
def stack(make_stack: StackMaker) -> Iterator[Stack]:
    stack = make_stack(env={**SHOP, "WAKEFUL_APPS": "lab", "WAKEFUL_LOG_LEVEL": "WARNING"}, agents=True)
    yield stack


def replay(stack: Stack, count: int, rate: int) -> str:
    stack.query(ARCHIVE, count)
    return again(stack, rate)


def again(stack: Stack, rate: int) -> str:
    words = ["replay", "--type", "lab.plain", "--since", "2d", "--trigger", "plain", "--rate", str(rate), "--json"]
    return str(json.loads(stack.manage(*words).stdout)["id"])


def progress_of(stack: Stack) -> tuple[int, float, str]:
    [row] = stack.query(TAKEN)
    return row["dispatched"], row["at"], row["status"]


def assert_each_once(stack: Stack, count: int) -> None:
    assert stack.query(RUNS) == [{"runs": count, "events": count, "disordered": 0}]


@pytest.mark.timeout(400)
def test_ten_thousand_events_at_a_hundred_a_second_hold_their_rate(stack: Stack) -> None:
    stack.start("dispatcher")
    replay(stack, 10_000, 100)
    eventually(lambda: progress_of(stack)[0] > 200)
    begun, began, _ = progress_of(stack)
    samples = []
    while (now := progress_of(stack))[0] < 9_900:
        samples.append((now[0] - begun) / (now[1] - began) if now[1] > began + 10 else 100.0)
        time.sleep(1)
    ended, ends, _ = progress_of(stack)

    eventually(lambda: progress_of(stack)[2] == "done", timeout=60)

    assert (ended - begun) / (ends - began) == pytest.approx(100, rel=0.05)
    assert min(samples) > 95 and max(samples) < 105
    assert_each_once(stack, 10_000)


@pytest.mark.timeout(300)
def test_a_replay_survives_kills_of_its_dispatcher_and_is_paused_and_cancelled(stack: Stack) -> None:
    dispatcher = stack.start("dispatcher")
    id = replay(stack, 4_000, 200)
    for reached in (500, 1_200, 2_000):
        eventually(lambda least=reached: progress_of(stack)[0] >= least, timeout=60)  # type: ignore[misc]
        dispatcher.kill()
        dispatcher = stack.start("dispatcher")
    with stack.orm():  # at once: a command takes seconds on a busy machine, and the replay would be done
        pause_replay(Replay.objects.get(pk=id), by="test")
    time.sleep(1)
    paused = progress_of(stack)[0]
    time.sleep(2)
    assert progress_of(stack)[0] == paused
    stack.manage("replays", "resume", id)
    eventually(lambda: progress_of(stack)[2] == "done", timeout=60)
    assert_each_once(stack, 4_000)

    stack.query("DELETE FROM runs_run RETURNING id")
    second = again(stack, 200)
    eventually(lambda: progress_of(stack)[0] >= 300, timeout=60)
    with stack.orm():
        cancel_replay(Replay.objects.get(pk=second), by="test")
    eventually(lambda: progress_of(stack)[2] == "cancelled", timeout=60)
    [left] = stack.query("SELECT count(*) FILTER (WHERE status <> 'cancelled') AS live, count(*) AS runs FROM runs_run")
    assert (left["live"], left["runs"] < 4_000) == (0, True)
