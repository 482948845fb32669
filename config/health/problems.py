"""What is wrong, in plain words, and what to do about it. Pages, doctor, health, metrics and alarms all ask here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from agents.durations import in_words
from config.health.situation import (
    BROKEN_SHOWN,
    COUNTED,
    FAILING_SHOWN,
    LATE,
    Process,
    Situation,
    Transaction,
)
from runs.models import Alarm, Worker
from runs.queues.state import SAMPLE, QueueState
from triggers.dispatch.erring import COUNTED as ERRORS_COUNTED

BAD, WARNING = Alarm.Severity.BAD, Alarm.Severity.WARNING
AT_ONCE = timedelta()
OUR_SCHEDULER = "triggers.beat:Scheduler"
NAMED = 5  # things of a kind that a sentence names

# What does not happen while a courier of a dispatcher hangs.
STUCK = {
    "ringer": "it rings for no worker, and sends no ordinary periodic task",
    "messenger": "it sends no alarm",
}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Bad: something that should happen does not. Warning: it is late, or was stopped on purpose.

    `lasted` is how long it has been so; from `alarm_after` on it is an alarm.
    """

    name: str
    severity: Alarm.Severity
    text: str
    remedy: str
    lasted: timedelta
    alarm_after: timedelta

    @property
    def is_alarm(self) -> bool:
        return self.lasted >= self.alarm_after


# What stands still where no process of a kind is alive, and how to start one.
NEEDED = {
    Worker.Kind.DISPATCHER: (
        "events are accepted and kept, but no run starts; retries and timers stand still",
        "`manage.py dispatcher` (`systemctl start wakeful-dispatcher`)",
    ),
    Worker.Kind.WORKER: (
        "runs are queued, but none is executed",
        "`celery -A config worker` (`systemctl start wakeful-worker@1`)",
    ),
    Worker.Kind.BEAT: (
        "no schedule fires; what is missed meanwhile is caught up by each schedule's policy",
        "`celery -A config beat` (`systemctl start wakeful-beat`)",
    ),
}


def missing(kind: Worker.Kind) -> str:
    return f"no-{kind.value}"


NO_DISPATCHER = missing(Worker.Kind.DISPATCHER)


def problems(now: Situation) -> list[Problem]:
    """Everything that is wrong, the worst first."""
    found = [
        *_missing(now),
        *_failover(now),
        *_undispatchable(now),
        *_unmoved(now),
        *_stuck(now),
        *_troubles(now),
        *_broken(now),
        *_queues(now),
        *_late(now),
        *_refusing(now),
        *_unknown_topics(now),
        *_triggers(now),
        *_erring(now),
        *_unnamed("offers", BAD, now.unmoved, BROKEN_SHOWN, "Offers of events that cannot be moved on"),
        *_unnamed("refusing", WARNING, now.refused, BROKEN_SHOWN, "Sources that refuse deliveries"),
        *_unnamed("failing", WARNING, now.failing, FAILING_SHOWN, "Triggers whose last runs failed"),
        *_unnamed("trigger-errors", WARNING, now.erring, BROKEN_SHOWN, "Triggers at which events ended in an error"),
        *_parked(now),
    ]
    return sorted(found, key=lambda problem: problem.severity != BAD)


def _missing(now: Situation) -> Iterator[Problem]:
    for kind, (effect, command) in NEEDED.items():
        if kind == Worker.Kind.BEAT and settings.CELERY_BEAT_SCHEDULER != OUR_SCHEDULER:
            continue  # nobody else's leaves a trace of being alive
        alive = now.alive(kind)
        if all(process.draining for process in alive):
            age = now.unseen.get(kind)
            if alive:
                seen = f"Every {kind.value} is stopping"
            elif age is None:
                seen = f"No {kind.value} has ever been seen"
            else:
                seen = f"No {kind.value} has been seen for {_span(age)}"
            yield Problem(
                name=missing(kind),
                severity=BAD,
                text=f"{seen}: {effect}.{_last(now, kind)}{_behind(now, kind)}",
                remedy=f"Start one: {command}. `manage.py up` starts a whole stack on one machine.",
                lasted=timedelta(seconds=_up_for(now) if age is None else age),
                alarm_after=settings.WAKEFUL_ALARM_AFTER,
            )


def _failover(now: Situation) -> Iterator[Problem]:
    if over := now.failover:
        known = over.known_until or "an unknown time"
        yield Problem(
            name="failover",
            severity=WARNING,
            text=f"PostgreSQL failed over: {over.was} is {over.now} since {over.noticed_at} (server/timeline). The newest commit "
            f"of the old primary that the new one has a trace of is from {known}: commits after it may be lost, among them "
            "events that were answered with 2xx, and intents of at_most_once steps.",
            remedy="Compare what senders sent and what services were asked after that time: docs/operations.md, “Failover”. "
            "This is shown for a day.",
            lasted=timedelta(seconds=over.age),
            alarm_after=AT_ONCE,
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
        return "vanished without a word: killed, frozen or cut off"
    return f"ended by itself ({process.stopped_reason})" if process.stopped_reason else "ended by itself"


def _behind(now: Situation, kind: str) -> str:
    if kind == Worker.Kind.DISPATCHER and now.undispatched:
        return f" {_count(now.undispatched, 'event')} waiting, the oldest for {_span(now.undispatched_age or 0)}."
    if kind == Worker.Kind.WORKER and (ready := sum(queue.ready for queue in now.queues)):
        return f" {_count(ready, 'run')} waiting."
    if kind == Worker.Kind.BEAT and now.schedules_late:
        return f" {_count(now.schedules_late, 'schedule')} late."
    return ""


def _undispatchable(now: Situation) -> Iterator[Problem]:
    for alarm in now.undispatchable:
        lasted = timedelta(seconds=alarm.age)
        yield Problem(
            name=alarm.name,
            severity=BAD,
            text=alarm.text,
            remedy=alarm.remedy,
            lasted=lasted,
            alarm_after=AT_ONCE,
        )


def _unmoved(now: Situation) -> Iterator[Problem]:
    for one in now.unmoved[:BROKEN_SHOWN]:
        what = "What ended in an error" if one.outcome == "error" else "What was held"
        done = "dropped" if one.drop else "dispatched again"
        yield Problem(
            name=f"offer:{one.slug}:{one.outcome}",
            severity=BAD,
            text=f"{what} at trigger {one.slug} cannot be {done}: {one.error}. It is kept, and tried again every 30 s.",
            remedy="Fix the cause; the dispatcher's log has the traceback. It goes on by itself then.",
            lasted=AT_ONCE,
            alarm_after=AT_ONCE,
        )


def _stuck(now: Situation) -> Iterator[Problem]:
    """What is late although the process that should do it is alive."""
    age = now.undispatched_age or 0
    if now.alive(Worker.Kind.DISPATCHER) and age > LATE.total_seconds():
        refused = (
            f" Webhooks are answered 503 from {settings.WAKEFUL_MAX_BACKLOG:,} on."
            if now.undispatched >= settings.WAKEFUL_MAX_BACKLOG // 2
            else ""
        )
        yield Problem(
            name="backlog",
            severity=BAD,
            text=f"{_count(now.undispatched, 'event')} waiting for dispatch, the oldest for {_span(age)}, "
            f"although a dispatcher is alive.{refused}",
            remedy="Read the dispatcher's log (`journalctl -u wakeful-dispatcher`), and look at the oldest transaction: "
            "one that holds a lock stops it.",
            lasted=timedelta(seconds=age),
            alarm_after=settings.WAKEFUL_ALARM_AFTER,
        )
    late = now.outbox_late or 0
    if now.alive(Worker.Kind.DISPATCHER) and late > LATE.total_seconds():
        yield Problem(
            name="outbox",
            severity=BAD,
            text=f"{_count(now.outbox, 'message')} in the outbox, the most overdue by {_span(late)}: emitted events, "
            "counts of failures and ordinary periodic tasks are late.",
            remedy="Read the dispatcher's log (`journalctl -u wakeful-dispatcher`).",
            lasted=timedelta(seconds=late),
            alarm_after=settings.WAKEFUL_ALARM_AFTER,
        )
    late = now.schedule_age or 0
    if now.alive(Worker.Kind.BEAT) and now.schedules_late:
        yield Problem(
            name="schedules",
            severity=BAD,
            text=f"{_count(now.schedules_late, 'schedule')} late, the most overdue by {_span(late)}, although beat is alive.",
            remedy="Read beat's log (`journalctl -u wakeful-beat`).",
            lasted=timedelta(seconds=late),
            alarm_after=settings.WAKEFUL_ALARM_AFTER,
        )
    if now.alive(Worker.Kind.BEAT) and now.schedules_unsettled:
        age = now.unsettled_age or 0
        yield Problem(
            name="edits",
            severity=BAD,
            text=f"{_count(now.schedules_unsettled, 'edited schedule')} not armed anew, the oldest for {_span(age)}, although "
            "beat is alive: none of these fires meanwhile.",
            remedy="Read beat's log (`journalctl -u wakeful-beat`), and look at the oldest transaction: one that holds a lock "
            "on them stops it.",
            lasted=timedelta(seconds=age),
            alarm_after=settings.WAKEFUL_ALARM_AFTER,
        )

    if now.looks.owed:
        yield Problem(
            name="looks-owed",
            severity=BAD,
            text=f"{_count(now.looks.owed, 'wait')} not searched yet for events that came before them, because the search "
            f"failed: {now.looks.error}. These runs do not expire, and wake only by a new event.",
            remedy="Fix the cause; the search is tried again at least every 5 minutes and continues where it stopped. "
            "A `statement_timeout` of the role shorter than a few seconds is a usual cause.",
            lasted=timedelta(seconds=now.looks.age or 0),
            alarm_after=settings.WAKEFUL_ALARM_AFTER,
        )


def _troubles(now: Situation) -> Iterator[Problem]:
    """What dispatchers say they cannot do."""
    found = [
        (name, trouble, process)
        for process in now.alive(Worker.Kind.DISPATCHER)
        for name, trouble in (process.troubles or {}).items()
    ]
    told = set()
    for name, trouble, process in sorted(found, key=lambda one: -one[1]["lasted"]):
        if name in told:
            continue  # one of them has had it for longer
        told.add(name)
        lasted = trouble["lasted"]
        if name == "broker-away":
            text = (
                f"The broker has not taken anything from dispatcher {process.name} for {_span(lasted)}: workers are not rung for "
                f"and ordinary periodic tasks wait; nothing is lost. It failed with: {trouble['error']}"
            )
            remedy = "Start Redis, or look why it refuses (`redis-cli ping`, its disk, its memory). All goes on by itself then."
        elif name.startswith("stuck:"):
            thread = name.removeprefix("stuck:")
            text = f"The {thread} of dispatcher {process.name} has not come back for {_span(lasted)}: {STUCK.get(thread, 'it hangs')}."
            remedy = f"Restart that dispatcher (process {process.pid})."
        else:
            continue  # a newer version's
        yield Problem(
            name=name,
            severity=BAD,
            text=text,
            remedy=remedy,
            lasted=timedelta(seconds=lasted),
            alarm_after=settings.WAKEFUL_ALARM_AFTER,
        )


def _unknown_topics(now: Situation) -> Iterator[Problem]:
    late = max(now.unknown_topics.values(), default=0.0)
    if late > LATE.total_seconds():
        yield Problem(
            name="outbox-unknown",
            severity=WARNING,
            text=f"Messages of a sort that this version does not know wait in the outbox, the oldest for {_span(late)}: "
            f"{', '.join(sorted(now.unknown_topics)[:NAMED])}. A newer version has left them, or an app that is gone.",
            remedy="Start a dispatcher of the version that wrote them.",
            lasted=timedelta(seconds=late),
            alarm_after=settings.WAKEFUL_ALARM_AFTER,
        )


def _broken(now: Situation) -> Iterator[Problem]:
    if not now.broken:
        return
    named = "; ".join(f"{one.name} ({one.problem})" for one in now.broken[:NAMED])
    more = " and others" if len(now.broken) > NAMED else ""
    yield Problem(
        name="schedules-broken",
        severity=BAD,
        text=f"Of the schedules that are on, some cannot fire: {named}{more}.",
        remedy="Edit the rule of each, or pause it: `manage.py schedules pause NAME`.",
        lasted=AT_ONCE,
        alarm_after=AT_ONCE,
    )


def _queues(now: Situation) -> Iterator[Problem]:
    if now.everything.is_paused:
        yield _paused(now.everything, "All queues have been")
        return  # whatever waits, waits on purpose
    for queue in now.queues:
        if queue.is_paused:
            yield _paused(queue, f"Queue {queue.name} has been")
        elif queue.homeless and queue.homeless_seconds > LATE.total_seconds() and now.alive(Worker.Kind.WORKER):
            yield _homeless(queue)
        elif queue.children and queue.oldest_seconds > settings.WAKEFUL_ALARM_LAG.total_seconds():
            yield _lag(queue)


def _paused(queue: QueueState, subject: str) -> Problem:
    waiting = f" {_count(queue.ready, 'run')} waiting." if queue.ready else ""
    argument = "" if queue.name == "*" else f" {queue.name}"
    return Problem(
        name=f"paused:{queue.name}",
        severity=WARNING,
        text=f"{subject} paused for {_span(queue.paused_seconds or 0)}, by {queue.paused_by}"
        f"{': ' + queue.paused_reason if queue.paused_reason else ''}. Events are accepted and become runs; none of them starts."
        f"{waiting}",
        remedy=f"Resume when it is time: `manage.py resume{argument}`, or on the Processes page.",
        lasted=queue.paused_for,
        alarm_after=settings.WAKEFUL_ALARM_PAUSED,
    )


def _homeless(queue: QueueState) -> Problem:
    agents = ", ".join(queue.homeless_agents[:5])
    return Problem(
        name=f"homeless:{queue.name}",
        severity=BAD,
        text=f"{_count(queue.homeless, 'run')} waiting in queue {queue.name!r} that no live worker can execute: none serves "
        f"that queue with code for {agents}.",
        remedy=f"Start a worker that has the agent's app in WAKEFUL_APPS and {queue.name!r} among its queues, "
        "or cancel the runs.",
        lasted=timedelta(seconds=queue.homeless_seconds),
        alarm_after=settings.WAKEFUL_ALARM_AFTER,
    )


def _lag(queue: QueueState) -> Problem:
    limited = queue.max_running is not None and queue.running >= queue.max_running
    why = f"its limit of {queue.max_running} is reached" if limited else f"all {queue.children} children are busy"
    return Problem(
        name=f"lag:{queue.name}",
        severity=WARNING,
        text=f"{_count(queue.ready, 'run')} waiting in queue {queue.name!r}, the oldest for {_span(queue.oldest_seconds)}: {why}.",
        remedy="Raise its limit." if limited else "Start more workers, or give them more children (--concurrency).",
        lasted=timedelta(seconds=queue.oldest_seconds),
        alarm_after=settings.WAKEFUL_ALARM_LAG,
    )


def _late(now: Situation) -> Iterator[Problem]:
    oldest = now.transaction
    if oldest and oldest.age > settings.WAKEFUL_ALARM_TRANSACTION.total_seconds():
        yield Problem(
            name="transaction",
            severity=WARNING,
            text=f"A transaction of {oldest.application or oldest.user} ({_where(oldest)}) has been "
            f"open for {_span(oldest.age)}: nothing that was changed since can be cleaned up. Looks at queues step over "
            "every run and event handled since, so dispatch, timers and claims get slower the longer it lasts.",
            remedy=f"End it where it was begun, or: {_ending(oldest)}",
            lasted=timedelta(seconds=oldest.age),
            alarm_after=settings.WAKEFUL_ALARM_TRANSACTION,
        )
    for host, apart in now.clocks.items():
        yield Problem(
            name=f"clock:{host}",
            severity=WARNING,
            text=f"The clock of host {host} is {apart} the database's: signed webhooks that it receives may be refused as too old "
            "or too new, the ids of events that it accepts are out of order, and agents that it runs are told a wrong time.",
            remedy=f"Synchronise the clocks of {host} and of the database server (NTP).",
            lasted=AT_ONCE,
            alarm_after=AT_ONCE,
        )
    for slot in now.slots:
        yield Problem(
            name=f"slot:{slot.name}",
            severity=WARNING,
            text=f"Nobody reads from replication slot {slot.name}, and for it the server keeps {slot.bytes / 2**30:.1f} GiB of log "
            f"and what the last {slot.transactions:,} transactions left behind: in the end the disk is full.",
            remedy=f"Start what reads from it, or, if nothing does any more: SELECT pg_drop_replication_slot('{slot.name}')",
            lasted=AT_ONCE,
            alarm_after=AT_ONCE,
        )
    if now.undelivered:
        yield Problem(
            name="deliveries",
            severity=WARNING,
            text=f"{_count(now.undelivered, 'message')} not delivered at the first try, and tried again. "
            f"The oldest failed with: {now.delivery_error}",
            remedy="If it does not pass by itself: is the broker, or the address it is sent to, there?",
            lasted=timedelta(seconds=now.undelivered_age or 0),
            alarm_after=settings.WAKEFUL_ALARM_AFTER,
        )


def _where(transaction: Transaction) -> str:
    if transaction.prepared:
        return f"prepared as {transaction.prepared!r}"
    return f"PostgreSQL process {transaction.pid}, {transaction.state}"


def _ending(transaction: Transaction) -> str:
    if transaction.prepared:
        return f"ROLLBACK PREPARED '{transaction.prepared}'"
    return f"SELECT pg_terminate_backend({transaction.pid})"


def _refusing(now: Situation) -> Iterator[Problem]:
    for source in now.refused[:BROKEN_SHOWN]:
        yield Problem(
            name=f"refusing:{source.slug}",
            severity=WARNING,
            text=f"Source {source.slug} refuses deliveries: {source.count:,} in the last day, the last {_span(source.last)} ago "
            f"({source.reason}). None has been proven since; the last proven one came {_span(source.proven)} ago.",
            remedy="Compare the secret at the sender with the source's: open the source, then “Enter a secret” or “New secret”. "
            "If a stranger sends to the address, nothing is wrong: the warning ends with the sender's next delivery.",
            lasted=timedelta(seconds=source.last),
            alarm_after=AT_ONCE,
        )


def _triggers(now: Situation) -> Iterator[Problem]:
    for one in now.failing[:FAILING_SHOWN]:
        yield Problem(
            name=f"failing:{one.slug}",
            severity=WARNING,
            text=f"The last {one.failures} runs of trigger {one.slug} failed.",
            remedy="Read the error of its latest run, fix the cause, and requeue the failed ones.",
            lasted=AT_ONCE,
            alarm_after=AT_ONCE,
        )
        if one.paused is not None:
            yield Problem(
                name=f"trigger-paused:{one.slug}",
                severity=BAD,
                text=f"Trigger {one.slug} has been paused for {_span(one.paused)}: {one.paused_reason}. Its events are kept.",
                remedy="Fix the cause, then resume the trigger: what was held is run, or dropped.",
                lasted=timedelta(seconds=one.paused),
                alarm_after=AT_ONCE,
            )


def _erring(now: Situation) -> Iterator[Problem]:
    for one in now.erring[:BROKEN_SHOWN]:
        more = "At least " if one.count == ERRORS_COUNTED else ""
        yield Problem(
            name=f"trigger-errors:{one.slug}",
            severity=WARNING,
            text=f"{more}{one.count:,} event{'' if one.count == 1 else 's'} ended in an error at trigger {one.slug} in the last "
            f"day and started no run of it. The last one, {_span(one.last)} ago: {one.reason}",
            remedy="Correct the filter, key or input of the trigger, then Dispatch again on its page "
            f"(`manage.py replay --errors --trigger {one.slug}`).",
            lasted=AT_ONCE,
            alarm_after=AT_ONCE,
        )


def _unnamed(name: str, severity: Alarm.Severity, found: Sequence[object], limit: int, what: str) -> Iterator[Problem]:
    """That there are more of a kind than are each a problem of its own."""
    if len(found) > limit:
        yield Problem(
            name=name,
            severity=severity,
            text=f"{what}: {limit:,} are told of one by one, and there are more.",
            remedy="The next is told of when one of those is over.",
            lasted=AT_ONCE,
            alarm_after=AT_ONCE,
        )


def _parked(now: Situation) -> Iterator[Problem]:
    if now.uncertain:
        yield Problem(
            name="uncertain",
            severity=WARNING,
            text=f"{_count(now.uncertain, 'run')} uncertain: whether a step happened, or how to go on, only a person can say.",
            remedy="Open Uncertain runs, find out what happened, and say so.",
            lasted=AT_ONCE,
            alarm_after=AT_ONCE,
        )


def _span(seconds: float) -> str:
    return in_words(timedelta(seconds=max(round(seconds), 0))) if seconds >= 1 else "a moment"


def _count(number: int, noun: str) -> str:
    """`1 event is`, `7 events are`, `more than 10,000 events are`."""
    if number == 1:
        return f"1 {noun} is"
    more = "at least " if number in (COUNTED, SAMPLE) else ""
    return f"{more}{number:,} {noun}s are"
