"""Several hosts, each with web, dispatcher, Beat, sources, caller and worker of its own. 300 events go to two of them in turns, and to
the other one where one does not answer. Meanwhile one is killed, freezes, loses PostgreSQL or the broker, or has a clock that is minutes
off: every event is accepted, and its run done once; no tick of a schedule is missing. `make chaos` runs this, and prints how long the
others took to go on with the work of the host that was gone."""

import http.client
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count, pairwise
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.integration.protocol import make_ticker
from tests.support.cables import Cable
from tests.support.hosts import KINDS, Host, hosts
from tests.support.moved_clock import MovedClock, can_move_clocks
from tests.support.stack import SHOP, Stack, StackMaker, eventually, within

pytestmark = pytest.mark.chaos

EVENTS, EVERY = 300, 0.05  # seconds between two
BEGINS, ENDS = 60, 180  # the number of the event at which the fault begins, and at which it ends
ANSWER = 4.0  # seconds that a sender waits for an answer
AVOIDED = 3.0  # seconds for which a sender leaves a host alone that gave none
TICKS = 20
BACK = 60.0  # seconds after which every process of a host works again whose fault is over
LEASE = {"WAKEFUL_LEASE": "3s", "WAKEFUL_LEASE_RENEW": "0.75s", "WAKEFUL_SAFETY_LOOK": "2s"}
LEFT = """
SELECT (SELECT count(*) FROM triggers_event WHERE dispatched_at IS NULL)
     + (SELECT count(*) FROM runs_run WHERE status NOT IN ('succeeded'))
     + (SELECT count(*) FROM runs_outboxmessage)
     + (SELECT count(*) FROM triggers_schedule schedule JOIN django_celery_beat_periodictask task ON task.id = schedule.task_id
        WHERE next_fire_at IS NOT NULL AND task.expires IS NOT NULL) AS n
"""
DONE = """
SELECT event.ce_id, count(DISTINCT run.id) FILTER (WHERE run.status = 'succeeded') AS runs, count(DISTINCT effect.id) AS effects
FROM triggers_event event
LEFT JOIN runs_run run ON event.id = ANY (run.event_ids) AND run.agent = ANY (%(agents)s)
LEFT JOIN shop_effect effect ON effect.event = event.id AND effect.agent = ANY (%(agents)s)
WHERE event.ce_id LIKE %(sent)s GROUP BY event.id
"""
# From the arrival of an event, or from the fault where it came before, to the end of its run.
SLOWEST = """
SELECT extract(epoch FROM max(run.finished_at - greatest(event.received_at, %s)))::float8 AS seconds
FROM runs_run run JOIN triggers_event event ON event.id = ANY (run.event_ids) WHERE event.ce_id LIKE %s AND run.finished_at > %s
"""
NOMINALS = r"""
SELECT substring(ce_id FROM '\d{4}-\d\d-.*')::timestamptz AS at FROM triggers_event
WHERE type = 'schedule.fired' AND target_id = %s ORDER BY 1
"""


@pytest.fixture(scope="module")
def stack(make_shared_stack: StackMaker) -> Stack:
    stack = make_shared_stack(env={**SHOP, **LEASE}, agents=True)
    stack.admit()
    return stack


@pytest.fixture(scope="module")
def up(stack: Stack) -> Iterator[list[Host]]:
    with hosts(stack, "anton", "berta") as made:
        for host in made:
            host.up()
        yield made


@pytest.fixture
def pair(stack: Stack, up: list[Host]) -> list[Host]:
    """Both hosts in good order, whatever the test before has done to one."""
    since = now(stack)
    for host in up:
        host.tend()
    eventually(lambda: not any(host.unseen(since) for host in up))
    return up


_numbers = count(1)


class Senders:
    """They send each event to one of the hosts in turn, and the same event to the other one as long as none answers."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.name = f"sent-{next(_numbers)}"
        self.hosts = hosts
        self.accepted: Counter[str] = Counter()
        self.by_host: Counter[str] = Counter()
        self.others = 0  # that the host whose turn it was has not accepted
        self.refused: list[str] = []
        self._avoided: dict[str, float] = {}

    def send(self, number: int) -> None:
        id, give_up_at = f"{self.name}-{number}", time.monotonic() + 90
        for turn in count(number):
            host = self.hosts[turn % len(self.hosts)]
            if time.monotonic() >= self._avoided.get(host.name, 0.0) and self._once(host, id, number):
                self.accepted[id] += 1
                self.by_host[host.name] += 1
                self.others += turn != number
                return
            assert time.monotonic() < give_up_at, f"{id} was not accepted"
            time.sleep(0.02)

    def _once(self, host: Host, id: str, number: int) -> bool:
        is_long = number % 30 == 29
        type = "sleep.a" if is_long else "effect.a"
        data = {"key": id, "seconds": 2} if is_long else {}
        event = {"specversion": "1.0", "id": id, "source": "test", "type": type, "data": data}
        headers = {
            "Authorization": f"Bearer {host.stack.env['WAKEFUL_API_TOKEN']}",
            "Content-Type": "application/cloudevents+json",
        }
        try:
            answer = host.stack.request(
                "POST", "/api/v1/events/", body=json.dumps(event).encode(), headers=headers, timeout=ANSWER
            )
        except (OSError, http.client.HTTPException):
            self._avoided[host.name] = time.monotonic() + AVOIDED
            return False
        if 400 <= answer.status < 500:
            self.refused.append(f"{host.name}: {answer.status} {answer.body[:200]!r}")
        return answer.status in (200, 202)


@dataclass
class Seen:
    """What came of it."""

    senders: Senders
    began: Any  # by the database's clock
    slowest: float = 0.0
    back: dict[str, float] = field(default_factory=dict)


def now(stack: Stack) -> Any:
    return stack.query("SELECT clock_timestamp() AS at")[0]["at"]


def send_through(
    stack: Stack, pair: Sequence[Host], begin: Callable[[], Any], end: Callable[[], Any] | None = None
) -> Seen:
    """Send them all, with a fault of the second host from BEGINS to ENDS, after which it comes back. When all is done: was each done
    once?"""
    senders = Senders(pair)
    seen = Seen(senders, None)
    ticker = make_ticker(stack, every="1s", length=timedelta(seconds=TICKS), slug=senders.name)
    with ThreadPoolExecutor(25) as threads:
        sent: list[Future[Any]] = []
        for number in range(EVENTS):
            if number == BEGINS:
                begin()
                seen.began = now(stack)
            if number == ENDS and end:
                end()
                sent.append(threads.submit(comes_back, stack, pair[1], seen))
            if number > ENDS and end:
                pair[1].tend()
            sent.append(threads.submit(senders.send, number))
            time.sleep(EVERY)
        while end and not sent[ENDS].done():
            pair[1].tend()
            time.sleep(EVERY)
        for one in sent:
            one.result()
    eventually(lambda: stack.query(LEFT)[0]["n"] == 0, every=0.2)
    seen.slowest = stack.query(SLOWEST, seen.began, f"{senders.name}-%", seen.began)[0]["seconds"]
    judge(stack, seen, ticker.trigger_id)
    return seen


def judge(stack: Stack, seen: Seen, ticks_of: Any) -> None:
    assert not seen.senders.refused, seen.senders.refused[:3]
    assert len(seen.senders.accepted) == EVENTS
    done = {row["ce_id"]: (row["runs"], row["effects"]) for row in _rows(stack, seen.senders.name)}
    assert len(done) == EVENTS
    assert set(done.values()) == {(1, 1)}, {id: found for id, found in done.items() if found != (1, 1)}
    nominals = [row["at"] for row in stack.query(NOMINALS, ticks_of)]
    assert len(nominals) >= TICKS - 1
    assert {after - before for before, after in pairwise(nominals)} == {timedelta(seconds=1)}, nominals
    stack.manage("verify")


def _rows(stack: Stack, sent: str) -> list[dict[str, Any]]:
    with psycopg.connect(stack.database_url, row_factory=dict_row) as connection:
        return connection.execute(DONE, {"agents": ["effect", "sleeper"], "sent": f"{sent}-%"}).fetchall()


def comes_back(stack: Stack, host: Host, seen: Seen) -> None:
    """Every kind of process of this host is seen by the database again."""
    since, began = now(stack), time.monotonic()
    left = set(KINDS)
    with within(BACK):
        while left:
            unseen = set(host.unseen(since))
            seen.back |= {kind: time.monotonic() - began for kind in left - unseen}
            left &= unseen
            assert time.monotonic() - began < 150, f"{left} do not come back"
            time.sleep(0.1)


def report(what: str, seen: Seen) -> None:
    back = ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in seen.back.items())
    print(
        f"\n{what}: {EVENTS} accepted, {seen.senders.others} of them by the other host; the slowest run ended "
        f"{seen.slowest:.1f} s after its event or the fault{f'; back after, s: {back}' if back else ''}",
        flush=True,
    )


# Killed and frozen


@pytest.mark.timeout(300)
def test_a_host_is_killed_whole(stack: Stack, pair: list[Host]) -> None:
    berta = pair[1]

    seen = send_through(stack, pair, berta.kill)

    report("killed", seen)
    assert seen.senders.others > 0


@pytest.mark.timeout(300)
def test_a_host_freezes_and_goes_on_later(stack: Stack, pair: list[Host]) -> None:
    berta = pair[1]

    seen = send_through(stack, pair, berta.freeze, berta.thaw)

    report("frozen", seen)
    assert seen.senders.others > 0


# Cut off


CUTS: Mapping[str, tuple[Callable[[Cable], None], Sequence[str]]] = {
    "PostgreSQL is silent": (Cable.silence, ["database"]),
    "PostgreSQL's answers do not arrive": (Cable.deafen, ["database"]),
    "PostgreSQL resets and refuses": (Cable.cut, ["database"]),
    "the broker is silent": (Cable.silence, ["broker"]),
    "the broker's answers do not arrive": (Cable.deafen, ["broker"]),
    "the broker resets and refuses": (Cable.cut, ["broker"]),
    "both are silent": (Cable.silence, ["database", "broker"]),
    "both reset and refuse": (Cable.cut, ["database", "broker"]),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("lossy", [False, True], ids=["what was sent arrives later", "what was sent is lost"])
@pytest.mark.parametrize("cut", CUTS)
def test_a_host_is_cut_off(stack: Stack, pair: list[Host], cut: str, lossy: bool) -> None:
    berta = pair[1]
    if lossy and "reset" in cut:
        pytest.skip("what is reset is lost in any case")
    do, where = CUTS[cut]

    def begin() -> None:
        for name in where:
            do(getattr(berta, name))

    def heal() -> None:
        berta.database.heal(lossy=lossy)
        berta.broker.heal(lossy=lossy)

    seen = send_through(stack, pair, begin, heal)

    report(f"{cut}{', lossy' if lossy else ''}", seen)
    if "broker" not in cut:
        assert seen.senders.others > 0


# Clocks


@pytest.mark.timeout(300)
@pytest.mark.skipif(not can_move_clocks(), reason="needs Linux and a C compiler")
@pytest.mark.parametrize("minutes", [5, -5])
def test_a_hosts_clock_is_minutes_off(
    stack: Stack, pair: list[Host], tmp_path_factory: pytest.TempPathFactory, minutes: int
) -> None:
    anton, berta = pair
    clock = MovedClock(tmp_path_factory.mktemp("clock"))
    clock.move(timedelta(minutes=minutes))
    berta.kill()
    with hosts(stack, f"clara{minutes}") as [clara]:
        clara.up(env=clock.env)

        seen = send_through(stack, [anton, clara], lambda: None)

        report(f"clock {minutes:+} min", seen)
        assert seen.senders.by_host[clara.name]  # it refuses none; a busy machine may answer one too late
        worked = "SELECT DISTINCT host FROM runs_attempt JOIN runs_worker worker ON worker.id = worker_id"
        assert clara.name in {row["host"] for row in stack.query(worked)}
        wrong = "SELECT DISTINCT host FROM runs_worker WHERE troubles ? 'clock' AND host = ANY (%s)"
        both = [anton.name, clara.name]
        assert [row["host"] for row in eventually(lambda: stack.query(wrong, both))] == [clara.name]
