"""An asynchronous standby is promoted under load, with every process alive throughout. What the new primary knows is done
exactly once, nothing is committed by an owner of the old one, and what was lost is reported. `make chaos` runs this;
CHAOS_FAILOVERS is how many follow each other, each server in turn the primary."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest

from config.health.verify import verify
from config.stack.embedded import Postgres
from tests.chaos.lab import FAST, Lab, lab, thaw
from tests.chaos.load import Delivery, Senders
from tests.support.stack import PATIENCE
from tests.support.standby import Standby, url_of_both

pytestmark = [pytest.mark.chaos, pytest.mark.long]

TIMES = int(os.environ.get("CHAOS_FAILOVERS", "3"))
CREW = {"web": 1, "dispatcher": 1, "worker": 2}
# A claim of the new primary that ended with the end of a session of the old one was ended by another process.
DISTURBED = """
SELECT run_id, epoch, outcome, error FROM runs_attempt
WHERE started_at > %s AND (error ILIKE '%%connection%%' OR error ILIKE '%%only reads%%')
"""


class Pair:
    """A primary and its standby, which change places."""

    def __init__(self, here: Lab, folder: Path, cleanup: ExitStack) -> None:
        assert here.stack.servers.postgres
        self.here, self.folder, self.cleanup = here, folder, cleanup
        self.database = urlsplit(here.stack.database_url).path[1:]
        self.primary: Postgres = here.stack.servers.postgres
        self.made = 0
        self.lost: set[UUID] = set()  # with primaries that are gone
        self.standby = self.new_standby()
        here.stack.env["DATABASE_URL"] = url_of_both(self.primary, self.standby, self.database)

    def new_standby(self, port: int = 0) -> Standby:
        self.made += 1
        standby = Standby(self.primary, self.folder / f"standby-{self.made}")
        if port:
            standby._remember("port", str(port))
        self.cleanup.enter_context(standby)
        until(standby.is_streaming)
        return standby

    def knows(self, event: str) -> bool:
        """Has the standby the run of this event?"""
        with psycopg.connect(self.standby.url_of(self.database)) as connection:
            query = "SELECT FROM runs_run WHERE %s::uuid = ANY (event_ids)"
            return bool(connection.execute(query, [event]).fetchall())

    def fail_over(self) -> None:
        self.primary.kill()
        self.standby.promote()
        self.here.stack.database_url = self.standby.url_of(self.database)

    def renew(self) -> None:
        """The new primary gets a standby, at the address of the old one."""
        port = self.primary.port
        self.primary = self.standby
        self.standby = self.new_standby(port)


def until(look: Any, timeout: float = PATIENCE) -> Any:
    ends = time.monotonic() + timeout
    while time.monotonic() < ends:
        try:
            if seen := look():
                return seen
        except psycopg.Error:
            pass
        time.sleep(0.05)
    raise AssertionError("it did not come about")


@contextmanager
def two_servers(folder: Path, patches: str, blocker: Any) -> Iterator[tuple[Lab, Pair]]:
    settings = {**FAST, "LAB_PATCHES": patches}
    with ExitStack() as cleanup, lab(folder, settings=settings, crew={}, blocker=blocker) as here:
        postgres = here.stack.servers.postgres
        assert postgres
        pair = Pair(here, postgres.place.parent, cleanup)  # where the account of the servers gets in
        here.crew = CREW
        here.start()
        until(lambda: here.stack.query("SELECT 1 FROM runs_primary"))
        yield here, pair


def load(senders: Senders, number: int) -> None:
    """From before the failover until after it: plain runs with children of their own events, and keys in order."""
    plain = [
        Delivery(id=f"plain-{number}-{n}", type="lab.plain", data={"number": n}, door="api" if n % 2 else "webhook")
        for n in range(60)
    ]
    senders.send(plain, pause=lambda: 0.05)
    for key in range(3):
        ordered = [
            Delivery(id=f"{number}-{key}-{n}", type="lab.ordered", data={"key": f"{number}-{key}", "number": n})
            for n in range(15)
        ]
        senders.send(ordered, pause=lambda: 0.15)


def promote_under_load(here: Lab, pair: Pair, number: int) -> list[str]:
    """One failover; what is wrong afterwards."""
    senders = here.senders(number)
    workers = here.of("worker")
    for worker in workers:
        worker.freeze()
    event = here.emit(senders, "lab.slow", seconds=3, number=0)
    until(lambda: pair.knows(event))
    load(senders, number)
    starved = pair.standby.starve()
    # The claim of this run is of the old primary alone.
    for worker in workers:
        worker.thaw()
    running = "SELECT * FROM runs_run WHERE status = 'running' AND %s::uuid = ANY (event_ids)"
    claimed = until(lambda: here.stack.query(running, event))[0]
    owner = here.who_runs(claimed)
    assert owner and starved
    time.sleep(0.5)
    owner.freeze()

    failed_at = here.now()
    pair.fail_over()
    again = until(lambda: here.stack.query(running, event))[0]
    wrong = []
    if (again["epoch"], again["claim"]) == (claimed["epoch"], claimed["claim"]):
        wrong.append("the claim was not lost, so nothing was tried")
    thaw(claimed["pid"], group=True)
    owner.thaw()

    here.wait_until(senders.is_done, 120)
    senders.close()
    here.wait_ready()
    if not here.drained(90):
        wrong.append(f"not drained: {here.left()} left")
    wrong += judge(here, pair, senders, failed_at)
    return wrong


def judge(here: Lab, pair: Pair, senders: Senders, failed_at: datetime) -> list[str]:
    accepted = here.history.accepted()
    known = {
        UUID(str(row["id"])) for row in here.stack.query("SELECT id FROM triggers_event WHERE id = ANY (%s)", accepted)
    }
    lost = set(accepted) - known
    with here.stack.orm():
        report = verify(since=senders.since, drained=True, accepted=sorted(known), own=here.own)
    wrong = [f"{finding.name}: {finding.violations[:3]}" for finding in report.violated]
    wrong += [f"an owner was disturbed: {row}" for row in here.stack.query(DISTURBED, failed_at)]
    [primary] = here.stack.query("SELECT *, previous <> '' AS over FROM runs_primary")
    if not primary["over"] or primary["noticed_at"] < failed_at:
        wrong.append(f"the failover was not noticed: {primary}")
    for event in lost - pair.lost:
        answered = answered_at(here, event)
        if primary["known_until"] is None or answered < primary["known_until"]:
            wrong.append(f"event {event}, answered at {answered}, is lost; only later ones were reported")
    pair.lost |= lost
    runs = sum(report.counts["runs"].values())
    print(f"    {len(accepted)} events accepted so far, {len(lost)} lost with old primaries; {runs} runs", flush=True)
    return wrong


def answered_at(here: Lab, event: UUID) -> datetime:
    lines = map(json.loads, here.history.file.read_text().splitlines())
    return datetime.fromtimestamp(max(line["at"] for line in lines if line.get("event") == str(event)), tz=UTC)


@pytest.mark.timeout(120 + 120 * TIMES)
def test_each_failover_keeps_every_invariant_and_reports_lost_commits(tmp_path: Path, django_db_blocker: Any) -> None:
    with two_servers(tmp_path / "lab", "hasty_outbox", django_db_blocker) as (here, pair):
        for number in range(TIMES):
            began = time.monotonic()
            wrong = promote_under_load(here, pair, number)
            print(f"\nfailover {number + 1}: {time.monotonic() - began:.1f} s, {len(wrong)} violations", flush=True)
            assert not wrong, wrong
            if number + 1 < TIMES:
                pair.renew()


@pytest.mark.timeout(120 + 120 * TIMES)
def test_a_fence_without_the_claims_identity_is_noticed(tmp_path: Path, django_db_blocker: Any) -> None:
    with two_servers(tmp_path / "lab", "hasty_outbox,no_claim_identity", django_db_blocker) as (here, pair):
        for number in range(TIMES):
            # On a busy machine a rescue may raise the epoch of the new claim, and then the epoch alone is fence enough.
            if wrong := promote_under_load(here, pair, number):
                break
            pair.renew()

    print(f"\nno_claim_identity: {len(wrong)} promises broken: {wrong[:3]}", flush=True)
    assert any("an owner was disturbed" in one for one in wrong)
