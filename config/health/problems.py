"""The problems of an installation: the cause and the remedy of each. Pages, doctor, health, metrics and alarms all use them."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings

from config.celery import OUR_SCHEDULER
from config.health.situation import Process, Situation
from runs.models import Worker
from runs.queues.state import SAMPLE, QueueState
from runs.sign import BAD, LATE, NAMED, WARNING, Problem, Sign, count, fault, span
from triggers.prompt_agents.signs.made_agents import MADE_AGENTS
from triggers.sources.signs.read_sources import READ_SOURCES

log = structlog.get_logger(__name__)

UNKNOWN = "unknown-sign"  # the kind of problem that a sign cannot be read

# The effect of a dispatcher's thread that hangs, or whose work fails.
EFFECTS = {
    "ringer": "it rings no worker's doorbell and sends no ordinary periodic task",
    "messenger": "it sends no alarm",
    "notifier": "it sends no notification",
    "postman": "it sends no event to subscriptions",
    "health": "it begins and ends no alarm",
    "slot-watch": "it looks at no replication slot",
    "dispatch by shards": "it dispatches alone, which is slower where one processor is not enough; nothing is lost",
}
# By kind of work, where it is not a row or a right.
REMEDIES = {
    "dispatch by shards": "Read the lines about shards in the dispatcher's log, and see whether memory, processes or connections of "
    "PostgreSQL are used up. Restart the dispatcher after a deployment. Or leave shards out: WAKEFUL_DISPATCH_SHARDS=1.",
}


# By kind of process: the effect while none is alive, and the command that starts one.
NEEDED = {
    Worker.Kind.DISPATCHER: (
        "events are accepted and kept, but no run starts; retries and timers do not fire",
        "`manage.py dispatcher` (`systemctl start wakeful-dispatcher`)",
    ),
    Worker.Kind.WORKER: (
        "runs are queued, but no run is executed",
        "`celery -A config worker` (`systemctl start wakeful-worker@1`)",
    ),
    Worker.Kind.BEAT: (
        "no schedule fires; each schedule's catch-up policy decides which missed fires it makes later",
        "`celery -A config beat` (`systemctl start wakeful-beat`)",
    ),
    Worker.Kind.SOURCES: (
        "brokers and feeds are not read; their messages wait there, as long as they keep them",
        "`manage.py sources` (`systemctl start wakeful-sources`)",
    ),
}

NOUNS = {Worker.Kind.SOURCES: "sources process"}


def needed(now: Situation) -> list[Worker.Kind]:
    """The kinds of processes that this installation cannot do without."""
    dispensable = set()
    if settings.CELERY_BEAT_SCHEDULER != OUR_SCHEDULER:
        dispensable.add(Worker.Kind.BEAT)  # other schedulers leave no sign of life
    if not any(sources.number for sources in now[READ_SOURCES]):
        dispensable.add(Worker.Kind.SOURCES)
    return [kind for kind in NEEDED if kind not in dispensable]


def missing(kind: Worker.Kind) -> str:
    return f"no-{kind.value}"


NO_DISPATCHER = missing(Worker.Kind.DISPATCHER)


def problems(now: Situation) -> list[Problem]:
    """All problems, bad ones first."""
    found = [
        *_missing(now),
        *_of_signs(now),
        *_stuck(now),
        *_troubles(now),
        *_second_beat(now),
        *_queues(now),
    ]
    return sorted(found, key=lambda problem: problem.severity != BAD)


def _of_signs(now: Situation) -> Iterator[Problem]:
    for sign in now.found:
        try:
            yield from list(sign.problems_of(now[sign]))
        except Exception as error:
            # A boundary: a row that one sign does not expect must not hide the problems of the others.
            log.exception("sign.failed", sign=sign.name)
            yield unknown(sign, repr(error))
    for sign, why in now.unread.items():
        yield unknown(sign, why)


def unknown(sign: Sign[Any], why: str) -> Problem:
    return Problem(
        name=f"{UNKNOWN}:{sign.name}",
        severity=BAD,
        text=f"Wakeful cannot find problems of the kinds {', '.join(sign.kinds)}: {why}. Their alarms neither begin nor end."
        if sign.kinds
        else f"Wakeful cannot read {sign.name}: {why}.",
        remedy="Check the rights of the database role, `statement_timeout`, and what holds a lock on the tables. The log has the "
        "whole error.",
    )


def unknown_kinds(now: Situation, wrong: Iterable[Problem]) -> set[str]:
    """The kinds of problems that cannot be found now."""
    names = {problem.name for problem in wrong if problem.kind == UNKNOWN}
    of_signs = (sign.kinds for sign in (*now.found, *now.unread) if f"{UNKNOWN}:{sign.name}" in names)
    return {kind for kinds in of_signs for kind in kinds}


def _missing(now: Situation) -> Iterator[Problem]:
    for kind in needed(now):
        effect, command = NEEDED[kind]
        alive = now.alive(kind)
        if all(process.draining for process in alive):
            age, noun = now.unseen.get(kind), NOUNS.get(kind, kind.value)
            if alive:
                seen = f"Every {noun} is stopping"
            elif age is None:
                seen = f"No {noun} has ever been seen"
            else:
                seen = f"No {noun} has been seen for {span(age)}"
            yield fault(
                name=missing(kind),
                text=f"{seen}: {effect}.{_last(now, kind)}{_behind(now, kind)}",
                remedy=f"Start one: {command}. `manage.py up` starts every process on one machine.",
                seconds=_up_for(now) if age is None else age,
            )


def _up_for(now: Situation) -> float:
    return max((process.started for process in now.processes if process.alive), default=0)


def _last(now: Situation, kind: str) -> str:
    gone = [process for process in now.processes if process.kind == kind and not process.alive]
    if not gone:
        return ""
    last = min(gone, key=lambda process: process.seen)
    return f" The last one, {last.name}, {_how_it_went(last)}."


def _how_it_went(process: Process) -> str:
    if process.stopped is None or process.stopped_reason == "unseen":
        return "vanished: killed, frozen or disconnected"
    return f"shut down ({process.stopped_reason})" if process.stopped_reason else "shut down"


def _behind(now: Situation, kind: str) -> str:
    if kind == Worker.Kind.DISPATCHER and now.undispatched:
        return f" {count(now.undispatched, 'event')} waiting, the oldest for {span(now.undispatched_age or 0)}."
    if kind == Worker.Kind.WORKER and (ready := sum(queue.ready for queue in now.queues)):
        return f" {count(ready, 'run', most=SAMPLE)} waiting."
    if kind == Worker.Kind.BEAT and now.schedules_late:
        return f" {count(now.schedules_late, 'schedule')} late."
    return ""


def _stuck(now: Situation) -> Iterator[Problem]:
    """Late work although the responsible process is alive."""
    age = now.undispatched_age or 0
    if now.alive(Worker.Kind.DISPATCHER) and age > LATE.total_seconds():
        refused = (
            f" From {settings.WAKEFUL_MAX_BACKLOG:,} waiting events of senders on, webhooks are answered 503."
            if now.undispatched >= settings.WAKEFUL_MAX_BACKLOG // 2
            else ""
        )
        yield fault(
            name="backlog",
            text=f"{count(now.undispatched, 'event')} waiting for dispatch, the oldest for {span(age)}, "
            f"although a dispatcher is alive.{refused}",
            remedy="Read the dispatcher's log (`journalctl -u wakeful-dispatcher`) and check the oldest transaction: "
            "a transaction that holds a lock can block the dispatcher.",
            seconds=age,
        )
    late = now.outbox_late or 0
    if now.alive(Worker.Kind.DISPATCHER) and late > LATE.total_seconds():
        yield fault(
            name="outbox",
            text=f"{count(now.outbox, 'message')} waiting in the outbox, the most overdue by {span(late)}: emitted events, "
            "failure counts and ordinary periodic tasks are late.",
            remedy="Read the dispatcher's log (`journalctl -u wakeful-dispatcher`).",
            seconds=late,
        )
    late = now.schedule_age or 0
    if now.alive(Worker.Kind.BEAT) and now.schedules_late:
        yield fault(
            name="schedules",
            text=f"{count(now.schedules_late, 'schedule')} late, the most overdue by {span(late)}, although beat is alive.",
            remedy="Read beat's log (`journalctl -u wakeful-beat`).",
            seconds=late,
        )
    if now.alive(Worker.Kind.BEAT) and now.schedules_unsettled:
        age = now.unsettled_age or 0
        yield fault(
            name="edits",
            text=f"{count(now.schedules_unsettled, 'edited schedule')} waiting for a new next fire, the oldest for "
            f"{span(age)}, although beat is alive. Until then they do not fire.",
            remedy="Read beat's log (`journalctl -u wakeful-beat`) and check the oldest transaction: a transaction that holds "
            "a lock on these schedules blocks beat.",
            seconds=age,
        )


def _troubles(now: Situation) -> Iterator[Problem]:
    """Troubles that live dispatchers report."""
    found = [
        (name, trouble, process)
        for process in now.alive(Worker.Kind.DISPATCHER)
        for name, trouble in (process.troubles or {}).items()
    ]
    seen = set()
    for name, trouble, process in sorted(found, key=lambda one: -one[1]["lasted"]):
        if name in seen:
            continue  # another dispatcher has had it for longer
        seen.add(name)
        lasted = trouble["lasted"]
        if name == "broker-away":
            text = (
                f"The broker has refused every message of dispatcher {process.name} for {span(lasted)}. Workers get no "
                f"doorbell and ordinary periodic tasks wait; nothing is lost. The last error: {trouble['error']}"
            )
            remedy = (
                "Start the broker, or find out why it refuses (of Redis: `redis-cli ping`, its disk, its memory). Work then "
                "continues without a restart."
            )
        elif name.startswith("stuck:"):
            thread = name.removeprefix("stuck:")
            effect = EFFECTS.get(thread, "it does no work")
            text = f"The {thread} thread of dispatcher {process.name} has hung for {span(lasted)}: {effect}."
            remedy = f"Restart that dispatcher (process {process.pid})."
        elif name.startswith("failing:"):
            work = name.removeprefix("failing:")
            text = (
                f"{work!r} of dispatcher {process.name} has failed for {span(lasted)}: {EFFECTS.get(work, 'this work is not done')}. "
                f"It is tried again all the time. The last error: {trouble['error']}"
            )
            remedy = REMEDIES.get(work) or (
                "Read the dispatcher's log, which has the whole error: correct the row that it names, or grant the right that it "
                "misses. Work then continues without a restart."
            )
        else:
            continue  # reported by a newer version
        yield fault(name=name, text=text, remedy=remedy, seconds=lasted)


def _second_beat(now: Situation) -> Iterator[Problem]:
    """Another Beat fires what ours fires; one of ours noticed it."""
    for process in now.alive(Worker.Kind.BEAT):
        if trouble := (process.troubles or {}).get("second-beat"):
            yield Problem(
                name="second-beat",
                severity=BAD,
                text=f"Another Beat fires periodic tasks that Wakeful's Beat fires, too: {trouble['error']}. Each of its fires is one "
                "that Wakeful leaves out, or a second one.",
                remedy="Stop the other Beat, or leave ordinary periodic tasks to it: unset WAKEFUL_ADOPT_PERIODIC_TASKS and restart "
                "Wakeful's. This ends an hour after the other Beat's last fire.",
                lasted=timedelta(seconds=trouble["lasted"]),
            )
            return


def _queues(now: Situation) -> Iterator[Problem]:
    if now.everything.is_paused:
        yield _paused(now.everything, "All queues have been")
        return  # every run waits on purpose
    for queue in now.queues:
        if queue.is_paused:
            yield _paused(queue, f"Queue {queue.name} has been")
        elif queue.homeless and queue.homeless_seconds > LATE.total_seconds() and now.alive(Worker.Kind.WORKER):
            yield _homeless(queue, now)
        elif queue.children and queue.oldest_seconds > settings.WAKEFUL_ALARM_LAG.total_seconds():
            yield _lag(queue)


def _paused(queue: QueueState, subject: str) -> Problem:
    waiting = f" {count(queue.ready, 'run', most=SAMPLE)} waiting." if queue.ready else ""
    argument = "" if queue.name == "*" else f" {queue.name}"
    return Problem(
        name=f"paused:{queue.name}",
        severity=WARNING,
        text=f"{subject} paused for {span(queue.paused_seconds or 0)}, by {queue.paused_by}"
        f"{': ' + queue.paused_reason if queue.paused_reason else ''}. Events are accepted and become runs, but no run starts."
        f"{waiting}",
        remedy=f"Resume when the reason is gone: `manage.py resume{argument}`, or on the Processes page.",
        lasted=queue.paused_for,
        alarm_after=settings.WAKEFUL_ALARM_PAUSED,
    )


def _homeless(queue: QueueState, now: Situation) -> Problem:
    agents = ", ".join(queue.homeless_agents[:5])
    deleted = [one.name for one in now[MADE_AGENTS] if one.is_deleted and one.name in queue.homeless_agents]
    gone = (
        f" Deleted prompt agents: {', '.join(deleted[:NAMED])}; restore them to let their runs go on."
        if deleted
        else ""
    )
    return fault(
        name=f"homeless:{queue.name}",
        text=f"{count(queue.homeless, 'run', most=SAMPLE)} waiting in queue {queue.name!r} and cannot start: no live worker serves the "
        f"queue and has the code of {agents}.",
        remedy=f"Start a worker that has the agent's app in WAKEFUL_APPS and {queue.name!r} among its queues, "
        f"or cancel the runs.{gone}",
        seconds=queue.homeless_seconds,
    )


def _lag(queue: QueueState) -> Problem:
    limited = queue.max_running is not None and queue.running >= queue.max_running
    why = f"its limit of {queue.max_running} is reached" if limited else f"all {queue.children} children are busy"
    return Problem(
        name=f"lag:{queue.name}",
        severity=WARNING,
        text=f"{count(queue.ready, 'run', most=SAMPLE)} waiting in queue {queue.name!r}, the oldest for "
        f"{span(queue.oldest_seconds)}: {why}.",
        remedy="Raise its limit." if limited else "Start more workers, or give them more children (--concurrency).",
        lasted=timedelta(seconds=queue.oldest_seconds),
        alarm_after=settings.WAKEFUL_ALARM_LAG,
    )
