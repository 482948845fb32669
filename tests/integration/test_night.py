"""A night of twelve hours on real processes, in minutes: every clock of the machine is moved, that of PostgreSQL included.

A heartbeat agent wakes every half hour, three things happen, an item of its checklist cannot be looked at until the morning, and
the first channel to people is down.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.support.moved_clock import MovedClock, can_move_clocks
from tests.support.notifying import make_recipient
from tests.support.post_office import HookServer, taking_hooks, taking_mail
from tests.support.servers import reachable_folder
from tests.support.stack import Stack, StackMaker, eventually
from tests.support.wire import Answer, Call, Wire
from triggers.overnight.figures import overnight
from triggers.overnight.night import night_until

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(not can_move_clocks(), reason="no C compiler, so the clocks cannot be moved"),
]
USER_APPS = Path(__file__).parent.parent / "userapps"
VIENNA = ZoneInfo("Europe/Vienna")
EVENING = datetime(2031, 1, 13, 18, 45, tzinfo=VIENNA)  # a Monday; the agent's first wake is at 19:15
MORNING = EVENING + timedelta(hours=12, minutes=20)
QUIET_FROM, QUIET_UNTIL = time(22), time(6, 30)
TICKET, DEPLOY, PAYMENTS = "Ticket 7 waits", "The deploy of the shop failed", "Payments are refused"
WAKES, NEWS = 24, 3
LOOKS = 7  # at the backup: at the first wake, and every two hours by the clock of its item
STEADY = {
    # No process vanishes, although all of them are unseen for half an hour at a time.
    "WAKEFUL_LEASE": "2d",
    "WAKEFUL_ALARM_AFTER": "2d",
    "WAKEFUL_ALARM_TRANSACTION": "2d",
    "WAKEFUL_SAFETY_LOOK": "1s",
}
# What is due now and not done yet. Tries to reach `ops`, which is down, keep nothing waiting.
BUSY = """
SELECT (SELECT count(*) FROM triggers_event WHERE dispatched_at IS NULL)
     + (SELECT count(*) FROM triggers_schedule WHERE stale OR due_at <= clock_timestamp())
     + (SELECT count(*) FROM runs_run WHERE status = 'running' OR status = 'queued' AND coalesce(due_at <= clock_timestamp(), true))
     + (SELECT count(*) FROM runs_wait WHERE status = 'open' AND due_at <= clock_timestamp())
     + (SELECT count(*) FROM runs_outboxmessage WHERE available_at <= clock_timestamp())
     + (SELECT count(*) FROM runs_incident WHERE tell_at <= clock_timestamp())
     + (SELECT count(*) FROM runs_notification WHERE planned_at IS NULL)
     + (SELECT count(*) FROM runs_delivery WHERE status = 'sending'
         OR status IN ('pending', 'held') AND (name = 'pager' AND due_at <= clock_timestamp() OR give_up_at <= clock_timestamp()))
     AS left
"""
NEXT = """
SELECT min(at) AS at FROM (
  SELECT due_at AS at FROM triggers_schedule
  UNION ALL SELECT due_at FROM runs_run WHERE status = 'queued'
  UNION ALL SELECT due_at FROM runs_wait WHERE status = 'open'
  UNION ALL SELECT available_at FROM runs_outboxmessage
  UNION ALL SELECT tell_at FROM runs_incident
  UNION ALL SELECT due_at FROM runs_delivery
  UNION ALL SELECT give_up_at FROM runs_delivery WHERE status IN ('pending', 'held', 'sending')) ahead
WHERE at > clock_timestamp()
"""
NUDGE = "SELECT pg_notify('wakeful_beat', ''), pg_notify('wakeful_dispatcher', '')"
UNWANTED = """
UPDATE django_celery_beat_periodictask SET enabled = false WHERE name IN ('wakeful.prune', 'celery.backend_cleanup')
RETURNING name
"""
BACKUP_DUE = "SELECT due_at FROM agents_checklistitem WHERE text LIKE '%%backup%%'"

TOLD = "SELECT 1 FROM triggers_gate WHERE state = to_jsonb(%s::int)"


class Simulation:
    """A stack whose time jumps from one thing that falls due to the next, and what happens in its world."""

    def __init__(self, stack: Stack, clock: MovedClock, wire: Wire, world: Path) -> None:
        self.stack, self.clock, self.wire, self.world = stack, clock, wire, world
        self.now: dict[str, Any] = {"changes": 0, "backup": ""}
        self.news: dict[str, str] = {}
        self.set()

    def set(self, **changes: Any) -> None:
        self.now |= changes
        self.world.write_text(json.dumps(self.now))

    def run(self, until: datetime, happenings: Sequence[tuple[datetime, dict[str, Any]]] = ()) -> None:
        """Let everything happen that falls due until then."""
        left = [*happenings, (until, {})]
        while left:
            eventually(lambda: not self.stack.query(BUSY)[0]["left"])
            ahead = self.stack.query(NEXT)[0]["at"] or until
            at, news = left[0]
            if ahead < at:
                self.move(ahead)
            else:
                self.move(at)
                self.happen(**news)
                left.pop(0)

    def move(self, at: datetime) -> None:
        self.teach(at)
        if at > self.clock.now:
            self.clock.move_to(at)
        self.stack.query(NUDGE)

    def happen(self, text: str = "", urgency: str = "normal", **changes: Any) -> None:
        if text:
            self.news = {"text": text, "urgency": urgency}
            changes["changes"] = self.now["changes"] + 1
        self.set(**changes)

    def teach(self, at: datetime) -> None:
        """Write down the model's answer to a request at that time."""
        if self.stack.query(TOLD, self.now["changes"]):
            self.news = {}
        [backup] = self.stack.query(BACKUP_DUE)
        looks = backup["due_at"] <= at + timedelta(minutes=5)
        outcome = "ok" if self.now["backup"] else "failed"
        items = [{"item": number, "outcome": "ok"} for number in (1, 2, 3)]
        if looks:
            items.append(
                {"item": 4, "outcome": outcome, "text": "" if self.now["backup"] else "the server does not answer"}
            )
        verdict = Call("final_result", notify=bool(self.news), items=items, **self.news)
        turns: list[Answer] = [[Call("newest_backup")]] if looks else []
        self.wire.script("night", *turns, [verdict])


@pytest.fixture
def hook() -> Iterator[HookServer]:
    with taking_hooks() as server:
        yield server


@pytest.fixture
def night(
    make_stack: StackMaker, wire: Wire, hook: HookServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Simulation]:
    """The evening: `ops` is sent mail by a server that is down, then `pager` gets the message by a webhook."""
    with ExitStack() as cleanup:
        clock = MovedClock(cleanup.enter_context(reachable_folder()))
        clock.move_to(EVENING)
        monkeypatch.setattr(
            "config.stack.embedded.postgres._ENVIRONMENT", {"PATH": "/usr/bin:/bin", "LC_ALL": "C", **clock.env}
        )
        smtp = cleanup.enter_context(taking_mail())
        smtp.close()
        env = {
            **wire.env,
            **STEADY,
            **clock.env,
            "WAKEFUL_MODEL": "openai-chat:gpt-4o",
            "WAKEFUL_APPS": "nightwatch",
            "PYTHONPATH": str(USER_APPS),
            "NIGHT_WORLD": str(tmp_path / "world.json"),
            "EMAIL_URL": smtp.url,
            "WAKEFUL_ZONE": VIENNA.key,
            "WAKEFUL_DIGEST_HOUR": "7",
        }
        stack = make_stack(own_servers=True, env=env, agents=True)
        [shown] = stack.query("SELECT clock_timestamp() AS now")
        assert abs(shown["now"] - clock.now) < timedelta(seconds=5)
        with stack.orm():
            rules = {
                "zone": VIENNA.key,
                "quiet_from": QUIET_FROM,
                "quiet_until": QUIET_UNTIL,
                "spacing": timedelta(minutes=30),
            }
            pager = make_recipient("pager", hook.url, gets_all=False, **rules)
            make_recipient("ops", "mailto:ops@example.com", second=pager, second_after=timedelta(minutes=1), **rules)
        yield Simulation(stack, clock, wire, tmp_path / "world.json")


def local(day: int, hour: int, minute: int) -> datetime:
    return datetime(2031, 1, day, hour, minute, tzinfo=VIENNA)


@pytest.mark.timeout(900)
def test_a_simulated_night_notifies_each_finding_once_and_sums_up_in_the_morning(
    night: Simulation, hook: HookServer
) -> None:
    stack = night.stack
    for kind in ("dispatcher", "beat"):
        stack.start(kind)
    stack.start("worker", concurrency=1)
    eventually(lambda: len(stack.query(UNWANTED)) == 2)

    night.run(
        MORNING,
        [
            (local(13, 20, 5), {"text": TICKET}),
            (local(14, 1, 50), {"text": DEPLOY}),
            (local(14, 3, 5), {"text": PAYMENTS, "urgency": "high"}),
            (local(14, 6, 0), {"backup": "2031-01-14T05:00Z"}),
        ],
    )

    # Twenty-four wakes; the model was called once for each gate that fired, and for nothing else.
    [gate] = stack.query("SELECT * FROM triggers_gate")
    assert (gate["fired"], gate["quiet"], gate["failed"]) == (NEWS + LOOKS, WAKES - NEWS - LOOKS, 0)
    assert stack.query("SELECT count(*) AS n FROM runs_step WHERE kind = 'llm'") == [{"n": gate["fired"]}]
    assert night.wire.asked("all") == {0: gate["fired"], 1: LOOKS}

    # Three notifications, one incident of the item that fails, with one all-clear, and a digest in the morning.
    spoken = stack.query("SELECT text FROM runs_notification WHERE sender = 'nightwatch' AND topic = '' ORDER BY id")
    assert [row["text"] for row in spoken] == [TICKET, DEPLOY, PAYMENTS]
    [incident] = stack.query("SELECT * FROM runs_incident")
    assert (incident["kind"], incident["count"], incident["told"]) == ("item", LOOKS - 1, "closed")
    opened, closed = stack.query("SELECT text FROM runs_notification WHERE topic LIKE 'incident:%%' ORDER BY id")
    assert "2 failed looks in a row. the server does not answer" in opened["text"]
    assert "succeeds again" in closed["text"]
    [digest] = eventually(lambda: stack.query("SELECT text FROM runs_notification WHERE topic LIKE 'overnight:%%'"))

    # All arrived once, by the second route, and in quiet hours only what is urgent.
    night.run(MORNING + timedelta(minutes=35))
    texts = [item["text"] for post in hook.posted for item in json.loads(post.body)["data"]["notifications"]]
    assert texts == [TICKET, opened["text"], PAYMENTS, DEPLOY, closed["text"], digest["text"]]
    sent = stack.query("SELECT name, sent_at, is_urgent FROM runs_delivery WHERE status = 'sent' ORDER BY sent_at")
    assert {row["name"] for row in sent} == {"pager"}
    assert [row["is_urgent"] for row in sent if is_quiet(row["sent_at"])] == [True]

    # The page and the digest say the same.
    with stack.orm():
        [watch] = [one for one in overnight(night_until(MORNING, VIENNA)).agents if one.agent == "nightwatch"]
    assert (watch.woken, watch.quiet, watch.failed, watch.incidents) == (WAKES, gate["quiet"], 0, 1)
    assert (watch.spoke, watch.requests, watch.deliveries["sent"]) == (NEWS, gate["fired"] + LOOKS, NEWS)
    assert f"nightwatch: {WAKES} wakes ({watch.quiet} quiet), 1 incident, {NEWS} notifications, " in digest["text"]


def is_quiet(at: datetime) -> bool:
    local = at.astimezone(VIENNA).time()
    return local >= QUIET_FROM or local < QUIET_UNTIL
