"""The text of a problem names the cause and the remedy."""

from typing import Any, TypeVar

import pytest

from config.health.problems import problems
from config.health.situation import Process, Situation
from runs.db.signs.inactive_slots import INACTIVE_SLOTS, Slot
from runs.db.signs.oldest_transaction import OLDEST_TRANSACTION, Transaction
from runs.incidents.signs.open_incidents import OPEN_INCIDENTS, OpenIncidents
from runs.queues.state import QueueState
from runs.sign import Problem, Sign
from runs.signs.undelivered import UNDELIVERED, Undelivered
from triggers.dispatch.failing_triggers import COUNTED as ERRORS_COUNTED
from triggers.dispatch.signs.erring import ERRING, Erring
from triggers.dispatch.signs.paused_triggers import PAUSED_TRIGGERS, PausedTrigger
from triggers.schedules.signs.broken import BROKEN, Broken
from triggers.sources.databases.signs.tables import TABLES, TableTrouble
from triggers.sources.signs.poison import POISON, Poisoned
from triggers.sources.signs.read_sources import READ_SOURCES, ReadSources
from triggers.sources.signs.unreadable import UNREADABLE, Unreadable
from triggers.switches.signs.unwatched import UNWATCHED, SwitchTrouble

R = TypeVar("R")
IDLE_QUEUE: dict[str, Any] = {
    "max_running": None,
    "paused_at": None,
    "paused_seconds": None,
    "paused_reason": "",
    "paused_by": "",
    "running": 0,
    "ready": 0,
    "oldest_seconds": 0,
    "homeless": 0,
    "homeless_seconds": 0,
    "homeless_agents": [],
    "children": 2,
}


def make_process(kind: str, **fields: Any) -> Process:
    values: dict[str, Any] = {
        "id": "1",
        "kind": kind,
        "host": "here",
        "pid": 7,
        "version": "1",
        "concurrency": 2,
        "agents": [],
        "queues": [],
        "alive": True,
        "draining": False,
        "started": 100.0,
        "seen": 1.0,
        "stopped": None,
        "stopped_reason": "",
    }
    return Process(**{**values, **fields})


def make_queue(name: str = "default", **fields: Any) -> QueueState:
    return QueueState(name=name, **{**IDLE_QUEUE, **fields})


def make_table(**fields: Any) -> TableTrouble:
    nothing = {
        "error": "",
        "remedy": "r",
        "seconds": None,
        "gap": "",
        "gap_seconds": None,
        "missed": "",
        "missed_seconds": None,
    }
    return TableTrouble(**{"slug": "tickets", **nothing, **fields})


def make_situation(*, without: str = "", **fields: Any) -> Situation:
    """A whole installation with nothing wrong, but for what is given."""
    kinds = [kind for kind in ("dispatcher", "worker", "beat", "web") if kind != without]
    values: dict[str, Any] = {
        "processes": [make_process(kind) for kind in kinds],
        "unseen": dict.fromkeys(kinds, 1.0),
        "queues": [make_queue("*"), make_queue()],
        "alarms": [],
    }
    return Situation(**{**values, **fields})


def found(sign: Sign[R], *rows: R) -> dict[str, Any]:
    """The field of a situation in which a sign has these rows."""
    return {"found": {sign: [vars(row) for row in rows]}}


def only(now: Situation) -> Problem:
    [problem] = problems(now)
    return problem


def test_a_whole_installation_has_nothing_wrong() -> None:
    assert problems(make_situation()) == []


@pytest.mark.parametrize(
    ("kind", "effect", "command"),
    [
        ("dispatcher", "events are accepted and kept, but no run starts", "manage.py dispatcher"),
        ("worker", "no run is executed", "celery -A config worker"),
        ("beat", "no schedule fires", "celery -A config beat"),
    ],
)
def test_a_missing_process_is_named_with_its_effect_and_the_command_to_start_it(
    kind: str, effect: str, command: str
) -> None:
    problem = only(make_situation(without=kind, unseen={kind: 42.0}))

    assert problem.text.startswith(f"No {kind} has been seen for 42 s: ")
    assert effect in problem.text
    assert command in problem.remedy
    assert "systemctl start wakeful-" in problem.remedy
    assert problem.severity == "bad"


def test_a_sources_process_is_missed_only_where_sources_are_read() -> None:
    problem = only(make_situation(**found(READ_SOURCES, ReadSources(number=1))))

    assert problem.name == "no-sources"
    assert problem.text.startswith("No sources process has ever been seen: brokers and feeds are not read")
    assert problems(make_situation(**found(READ_SOURCES, ReadSources(number=0)))) == []


def test_a_process_that_was_never_seen_is_distinguished_from_one_that_is_gone() -> None:
    assert only(make_situation(without="beat", unseen={})).text.startswith("No beat has ever been seen: ")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stopped": None}, "vanished: killed, frozen or disconnected"),
        ({"stopped": 30.0, "stopped_reason": "unseen"}, "vanished: killed, frozen or disconnected"),
        ({"stopped": 30.0, "stopped_reason": "stopped"}, "shut down (stopped)"),
    ],
)
def test_the_problem_names_how_the_last_process_ended(fields: dict[str, Any], message: str) -> None:
    here = make_situation(without="dispatcher", unseen={"dispatcher": 42.0})
    gone = make_process("dispatcher", alive=False, seen=42.0, **fields)

    problem = only(Situation(**{**vars(here), "processes": [*here.processes, gone]}))

    assert f"The last one, here:7, {message}" in problem.text


def test_events_that_wait_for_a_dispatcher_are_no_second_problem() -> None:
    now = make_situation(
        without="dispatcher", unseen={"dispatcher": 42.0}, undispatched=3, undispatched_age=40.0, outbox_late=40.0
    )

    assert "3 events are waiting, the oldest for 40 s." in only(now).text


def test_workers_that_are_all_stopping_are_as_good_as_none() -> None:
    here = make_situation(without="worker")
    stopping = make_process("worker", draining=True)

    problem = only(Situation(**{**vars(here), "processes": [*here.processes, stopping]}))

    assert problem.text.startswith("Every worker is stopping: ")


@pytest.mark.parametrize(
    ("fields", "name", "message"),
    [
        ({"undispatched": 12, "undispatched_age": 180.0}, "backlog", "12 events are waiting for dispatch"),
        ({"outbox": 1, "outbox_late": 60.0}, "outbox", "1 message is waiting in the outbox"),
        ({"schedules_late": 2, "schedule_age": 60.0}, "schedules", "2 schedules are late"),
        (
            {"schedules_unsettled": 1, "unsettled_age": 90.0},
            "edits",
            "1 edited schedule is waiting for a new next fire, the oldest for 1 min 30 s, although beat is alive",
        ),
        (
            found(BROKEN, Broken(name="digest", problem="hour 25 is not between 0 and 23")),
            "schedules-broken",
            "Active schedules cannot fire: digest (hour 25 is not between 0 and 23).",
        ),
        (
            found(
                OLDEST_TRANSACTION,
                Transaction(pid=9, user="app", application="psql", state="idle in transaction", query="", age=3600.0),
            ),
            "transaction",
            "A transaction of psql (PostgreSQL process 9, idle in transaction) has been open for 1 h",
        ),
        (
            found(
                OLDEST_TRANSACTION,
                Transaction(
                    pid=0, user="app", application="", state="prepared", query="", age=3600.0, prepared="two-phase-7"
                ),
            ),
            "transaction",
            "A transaction of app (prepared as 'two-phase-7') has been open for 1 h",
        ),
        (
            found(INACTIVE_SLOTS, Slot(name="standby", transactions=2_000_000, bytes=3 * 2**30)),
            "slot:standby",
            "Replication slot standby is inactive and retains 3.0 GiB of WAL",
        ),
        (
            found(UNDELIVERED, Undelivered(count=1, age=5.0, error="URLError: refused")),
            "deliveries",
            "URLError: refused",
        ),
        (
            found(PAUSED_TRIGGERS, PausedTrigger(slug="greeter", reason="10 failed runs in a row", seconds=60.0)),
            "trigger-paused:greeter",
            "Trigger greeter has been paused for 1 min: 10 failed runs in a row.",
        ),
        (
            found(OPEN_INCIDENTS, OpenIncidents(count=7, names=["trigger a", "item disk"])),
            "incidents",
            "7 incidents are open: trigger a, item disk, ….",
        ),
        (
            found(ERRING, Erring(slug="greeter", count=1, reason="no such key: revenue", last=120.0)),
            "trigger-errors:greeter",
            "1 event ended in an error at trigger greeter in the last day and started no run. The last error, 2 min ago: "
            "no such key: revenue",
        ),
        (
            found(ERRING, Erring(slug="greeter", count=ERRORS_COUNTED, reason="no such key", last=120.0)),
            "trigger-errors:greeter",
            "At least 1,000 events ended in an error",
        ),
        (
            found(UNREADABLE, Unreadable(slug="orders", error="Connection refused.", remedy="", seconds=40.0)),
            "source:orders",
            "Source orders has not been readable for 40 s: Connection refused. Its messages wait there.",
        ),
        (
            found(POISON, Poisoned(slug="orders", count=2, reason="no envelope", last=40.0)),
            "poison:orders",
            "2 messages of source orders could not become events in the last day. The last one, 40 s ago: no envelope",
        ),
        (
            found(
                UNWATCHED,
                SwitchTrouble(slug="orders", turned_away=3, turned_away_seconds=40.0, error="", error_seconds=None),
            ),
            "switch-keys:orders",
            "reached its limit of keys. 3 events with new keys are not watched.",
        ),
        (
            found(
                UNWATCHED,
                SwitchTrouble(
                    slug="orders", turned_away=0, turned_away_seconds=None, error="no such key", error_seconds=4.0
                ),
            ),
            "switch-error:orders",
            "failed on an event, which it did not see: no such key.",
        ),
        (
            found(TABLES, make_table(error="no table of this database is named ticket.", seconds=40.0)),
            "table:tickets",
            "The triggers of source tickets are not as they should be: no table of this database is named ticket.",
        ),
        (
            found(TABLES, make_table(gap="The triggers on ticket were gone.", gap_seconds=40.0)),
            "table-gap:tickets",
            "Source tickets: The triggers on ticket were gone.",
        ),
        (
            found(TABLES, make_table(missed="found 2 updates that no trigger had seen.", missed_seconds=40.0)),
            "table-missed:tickets",
            "The last sweep of source tickets found 2 updates that no trigger had seen.",
        ),
        (
            {"queues": [make_queue("*"), make_queue(ready=5, oldest_seconds=900.0)]},
            "lag:default",
            "all 2 children are busy",
        ),
        (
            {"queues": [make_queue("*"), make_queue(ready=5, oldest_seconds=900.0, max_running=1, running=1)]},
            "lag:default",
            "its limit of 1 is reached",
        ),
        (
            {
                "queues": [
                    make_queue("*"),
                    make_queue(ready=1, homeless=1, homeless_seconds=60.0, homeless_agents=["newcomer"]),
                ]
            },
            "homeless:default",
            "no live worker serves the queue and has the code of newcomer",
        ),
        (
            {"queues": [make_queue("*"), make_queue(paused_seconds=60.0, paused_by="admin:ada", paused_reason="fire")]},
            "paused:default",
            "Queue default has been paused for 1 min, by admin:ada: fire.",
        ),
    ],
)
def test_late_and_stopped_work_is_named(fields: dict[str, Any], name: str, message: str) -> None:
    problem = only(make_situation(**fields))

    assert problem.name == name
    assert message in problem.text
    assert problem.remedy


@pytest.mark.parametrize(
    "fields",
    [
        {"undispatched": 12, "undispatched_age": 5.0},
        {"outbox": 1, "outbox_late": -60.0},
        {"schedule_age": 5.0},
        {"queues": [make_queue("*"), make_queue(ready=5, oldest_seconds=60.0)]},
    ],
)
def test_work_that_waits_its_turn_is_no_problem(fields: dict[str, Any]) -> None:
    assert problems(make_situation(**fields)) == []


def test_while_everything_is_paused_nothing_that_waits_is_a_problem_of_its_own() -> None:
    paused = make_queue("*", paused_seconds=60.0, paused_by="cli:root", paused_reason="started with --paused")
    waiting = make_queue(ready=5, oldest_seconds=9000.0, homeless=5, homeless_seconds=9000.0)

    problem = only(make_situation(queues=[paused, waiting]))

    assert problem.name == "paused:*"
    assert "manage.py resume" in problem.remedy


@pytest.mark.parametrize(("age", "is_alarm"), [(30.0, False), (61.0, True)])
def test_a_fault_is_an_alarm_once_it_has_lasted(age: float, is_alarm: bool) -> None:
    assert only(make_situation(without="beat", unseen={"beat": age})).is_alarm is is_alarm


def test_a_large_backlog_warns_that_webhooks_will_be_answered_503(settings: Any) -> None:
    settings.WAKEFUL_MAX_BACKLOG = 100

    assert (
        "From 100 waiting events of senders on, webhooks are answered 503."
        in only(make_situation(undispatched=60, undispatched_age=60.0)).text
    )
