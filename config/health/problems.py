"""The problems of an installation: the cause and the remedy of each. Pages, doctor, health, metrics and alarms all use them."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import structlog
from django.conf import settings

from agents import registry
from agents.tools import toolbox
from config.celery import OUR_SCHEDULER
from config.health.situation import BROKEN_SHOWN, PAUSED_SHOWN, Process, Situation, Transaction, Unreachable
from runs.actions.stop_agents import EVERY
from runs.budgets.room import amount_in_words
from runs.models import Worker
from runs.queues.state import SAMPLE, QueueState
from runs.sign import BAD, LATE, NAMED, NEVER, WARNING, Problem, Sign, count, fault, span
from runs.states import Severity
from triggers.dispatch.failing_triggers import COUNTED as ERRORS_COUNTED
from triggers.sources.signs.read_sources import READ_SOURCES

log = structlog.get_logger(__name__)

UNKNOWN = "unknown-sign"  # the kind of problem that a sign cannot be read
INCIDENTS = "incidents"  # the problem that incidents are open
FAILING = timedelta(hours=1)  # a shorter failure of an endpoint may be a deploy

# The effect of a dispatcher's thread that hangs.
STUCK = {
    "ringer": "it rings no worker's doorbell and sends no ordinary periodic task",
    "messenger": "it sends no alarm",
    "notifier": "it sends no notification",
    "postman": "it sends no event to subscriptions",
    "health": "it begins and ends no alarm",
    "slot-watch": "it looks at no replication slot",
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
        *_failover(now),
        *_undispatchable(now),
        *_unmoved(now),
        *_stuck_replays(now),
        *_stuck(now),
        *_troubles(now),
        *_broken(now),
        *_stops(now),
        *_queues(now),
        *_late(now),
        *_unknown_topics(now),
        *_triggers(now),
        *_incidents(now),
        *_erring(now),
        *_unnamed("offers", BAD, now.unmoved, BROKEN_SHOWN, "Offers of events that keep failing"),
        *_unnamed("paused-triggers", BAD, now.paused, PAUSED_SHOWN, "Triggers that paused after failed runs"),
        *_unnamed("trigger-errors", WARNING, now.erring, BROKEN_SHOWN, "Triggers at which events ended in an error"),
        *_parked(now),
        *_budgets(now),
        *_notifications(now),
        *_subscriptions(now),
        *_prompt_agents(now),
        *_unnamed("unreachable", BAD, now.unreachable, BROKEN_SHOWN, "Recipients that notifications cannot be sent to"),
        *_unnamed("subscriptions", BAD, now.subscriptions, BROKEN_SHOWN, "Subscriptions whose endpoints fail"),
        *_unnamed("budgets", WARNING, now.budgets, BROKEN_SHOWN, "Budgets near their cap"),
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


def _failover(now: Situation) -> Iterator[Problem]:
    if over := now.failover:
        known = over.known_until or "an unknown time"
        yield Problem(
            name="failover",
            severity=WARNING,
            text=f"PostgreSQL failed over from {over.was} to {over.now} (server/timeline), noticed at {over.noticed_at}. The new "
            f"primary has the old primary's commits up to {known}. Later commits may be lost, including events that were "
            "answered with 2xx and intents of at_most_once steps.",
            remedy="Compare your records with those of senders and called services after that time: docs/upgrade.md, "
            "“Failover”. This warning ends after a day.",
            lasted=timedelta(seconds=over.age),
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


def _undispatchable(now: Situation) -> Iterator[Problem]:
    for alarm in now.undispatchable:
        lasted = timedelta(seconds=alarm.age)
        yield Problem(name=alarm.name, severity=BAD, text=alarm.text, remedy=alarm.remedy, lasted=lasted)


def _unmoved(now: Situation) -> Iterator[Problem]:
    for one in now.unmoved[:BROKEN_SHOWN]:
        which = "Events that ended in an error" if one.outcome == "error" else "Held events"
        action = "dropped" if one.drop else "dispatched again"
        yield Problem(
            name=f"offer:{one.slug}:{one.outcome}",
            severity=BAD,
            text=f"{which} of trigger {one.slug} cannot be {action}: {one.error}. They are kept and retried every 30 s.",
            remedy="Fix the cause; the dispatcher's log has the traceback. The next retry then succeeds.",
        )


def _stuck_replays(now: Situation) -> Iterator[Problem]:
    for one in now.stuck_replays:
        yield Problem(
            name=f"replay:{one.id}",
            severity=BAD,
            text=f"Replay {one.id} cannot go on: {one.error}. It is retried every 30 s.",
            remedy="Fix the cause (the dispatcher's log has the traceback), or cancel the replay.",
        )


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

    if now.looks.owed:
        yield fault(
            name="looks-owed",
            text=f"{count(now.looks.owed, 'wait')} without a complete search for earlier events, because the search "
            f"failed: {now.looks.error}. These waits do not time out; only a new event ends them.",
            remedy="Fix the cause. The search is retried at least every 5 minutes and continues where it stopped. "
            "A usual cause is a `statement_timeout` of the role of less than a few seconds.",
            seconds=now.looks.age or 0,
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
                "Start Redis, or find out why it refuses (`redis-cli ping`, its disk, its memory). Work then continues without "
                "a restart."
            )
        elif name.startswith("stuck:"):
            thread = name.removeprefix("stuck:")
            text = f"The {thread} thread of dispatcher {process.name} has hung for {span(lasted)}: {STUCK.get(thread, 'it does no work')}."
            remedy = f"Restart that dispatcher (process {process.pid})."
        else:
            continue  # reported by a newer version
        yield fault(name=name, text=text, remedy=remedy, seconds=lasted)


def _unknown_topics(now: Situation) -> Iterator[Problem]:
    late = max(now.unknown_topics.values(), default=0.0)
    if late > LATE.total_seconds():
        yield Problem(
            name="outbox-unknown",
            severity=WARNING,
            text=f"The outbox holds messages with topics this version does not know, the oldest for {span(late)}: "
            f"{', '.join(sorted(now.unknown_topics)[:NAMED])}. A newer version or a removed app wrote them.",
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
        text=f"Active schedules cannot fire: {named}{more}.",
        remedy="Correct the rule of each schedule, or pause it: `manage.py schedules pause NAME`.",
    )


def _stops(now: Situation) -> Iterator[Problem]:
    for stop in now.stops:
        subject = "All agents have" if stop.agent == EVERY else f"Agent {stop.agent} has"
        yield Problem(
            name=f"stopped:{stop.agent}",
            severity=WARNING,
            text=f"{subject} been stopped for {span(stop.seconds)}, by {stop.by}"
            f"{': ' + stop.reason if stop.reason else ''}. Events are accepted and become runs, but no run starts.",
            remedy=f"Start again when the reason is gone: `manage.py start "
            f"{'--all' if stop.agent == EVERY else f'--agent {stop.agent}'}`, or on the Agents page.",
            lasted=timedelta(seconds=stop.seconds),
            alarm_after=settings.WAKEFUL_ALARM_PAUSED,
        )


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
    deleted = [one.name for one in now.prompt_agents if one.is_deleted and one.name in queue.homeless_agents]
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


def _late(now: Situation) -> Iterator[Problem]:
    oldest = now.transaction
    if oldest and oldest.age > settings.WAKEFUL_ALARM_TRANSACTION.total_seconds():
        yield Problem(
            name="transaction",
            severity=WARNING,
            text=f"A transaction of {oldest.application or oldest.user} ({_where(oldest)}) has been "
            f"open for {span(oldest.age)}. VACUUM cannot remove rows that died since then, so every look at a queue "
            "reads past them: dispatch, timers and claims get slower the longer it lasts.",
            remedy=f"End it in the program that opened it, or: {_ending(oldest)}",
            lasted=timedelta(seconds=oldest.age),
            alarm_after=settings.WAKEFUL_ALARM_TRANSACTION,
        )
    for host, apart in now.clocks.items():
        yield Problem(
            name=f"clock:{host}",
            severity=WARNING,
            text=f"The clock of host {host} is {apart} the database's. This host may refuse signed webhooks as too old or too "
            "new, gives events ids that are out of order, and gives its agents the wrong time.",
            remedy=f"Synchronise the clocks of {host} and of the database server (NTP).",
        )
    for slot in now.slots:
        yield Problem(
            name=f"slot:{slot.name}",
            severity=WARNING,
            text=f"Replication slot {slot.name} is inactive and retains {slot.bytes / 2**30:.1f} GiB of WAL and the dead rows of "
            f"the last {slot.transactions:,} transactions. It fills the disk.",
            remedy="Start the program that reads from it, or, if none does any more, drop it: "
            f"SELECT pg_drop_replication_slot('{slot.name}')",
        )
    if now.undelivered:
        yield Problem(
            name="deliveries",
            severity=WARNING,
            text=f"{count(now.undelivered, 'message')} undelivered after the first attempt and will be retried. "
            f"The oldest failed with: {now.delivery_error}",
            remedy="If this lasts, check that the broker or the target address is reachable.",
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


def _triggers(now: Situation) -> Iterator[Problem]:
    for one in now.paused[:PAUSED_SHOWN]:
        yield Problem(
            name=f"trigger-paused:{one.slug}",
            severity=BAD,
            text=f"Trigger {one.slug} has been paused for {span(one.seconds)}: {one.reason}. Its events are kept.",
            remedy="Fix the cause, then resume the trigger and choose whether its held events run or are dropped.",
            lasted=timedelta(seconds=one.seconds),
        )


def _incidents(now: Situation) -> Iterator[Problem]:
    found = now.incidents
    if found.count:
        more = ", …" if found.count > len(found.names) else ""
        yield Problem(
            name=INCIDENTS,
            severity=WARNING,
            text=f"{count(found.count, 'incident')} open: {', '.join(found.names)}{more}.",
            remedy="Open “Incidents”: read the cause of each, fix it, then requeue the failed runs in one step.",
            alarm_after=NEVER,
        )
    if found.untold:
        yield Problem(
            name="many-incidents",
            severity=BAD,
            text=f"{found.untold:,} more incidents have opened in the last hour than the {settings.WAKEFUL_INCIDENT_MESSAGES} "
            "that get a message of their own.",
            remedy="Many things fail at once: look for a cause that they share, such as a service that is away.",
        )


def _erring(now: Situation) -> Iterator[Problem]:
    for one in now.erring[:BROKEN_SHOWN]:
        more = "At least " if one.count == ERRORS_COUNTED else ""
        yield Problem(
            name=f"trigger-errors:{one.slug}",
            severity=WARNING,
            text=f"{more}{one.count:,} event{'' if one.count == 1 else 's'} ended in an error at trigger {one.slug} in the last "
            f"day and started no run. The last error, {span(one.last)} ago: {one.reason}",
            remedy="Correct the trigger's filter, key or input, then use “Dispatch again” on its page "
            f"(`manage.py replay --errors --trigger {one.slug}`).",
        )


def _unnamed(name: str, severity: Severity, found: Sequence[object], limit: int, what: str) -> Iterator[Problem]:
    """A problem for the ones over the limit, if more of a kind are wrong than get a problem each."""
    if len(found) > limit:
        yield Problem(
            name=name,
            severity=severity,
            text=f"{what}: {limit:,} are listed, and there are more.",
            remedy="Fix the listed ones first. Each that is over makes room for the next.",
        )


def _parked(now: Situation) -> Iterator[Problem]:
    if now.uncertain:
        yield Problem(
            name="uncertain",
            severity=WARNING,
            text=f"{count(now.uncertain, 'run')} uncertain: a person must decide whether a step happened, or how the run "
            "continues.",
            remedy="Open “Uncertain runs”, find out what happened, and record the answer.",
        )


def _budgets(now: Situation) -> Iterator[Problem]:
    raised = "Raise the cap, or allow more once, under Budgets (`PATCH /api/v1/budgets/<id>/`)."
    for one in now.budgets[:BROKEN_SHOWN]:
        whose = "All runs have" if one.scope == "installation" else f"{one.scope.capitalize()} {one.name} has"
        spent, allowed = (amount_in_words(one.measure, Decimal(str(amount))) for amount in (one.spent, one.allowed))
        share = f", {one.spent / one.allowed:.0%}" if one.allowed else ""
        yield Problem(
            name=f"budget:{one.id}",
            severity=WARNING,
            text=f"{whose} spent {spent} of {allowed} in this {one.period} (UTC){share}. A run without budget waits.",
            remedy=raised,
        )
    if now.budget_waits.count:
        yield fault(
            name="budget-waits",
            seconds=now.budget_waits.age or 0,
            text=f"{count(now.budget_waits.count, 'run')} waiting for budget, the oldest for "
            f"{span(now.budget_waits.age or 0)}: {now.budget_waits.reason}.",
            remedy=f"{raised} A run goes on by itself when the window of its budget turns.",
        )


def _instead(one: Unreachable) -> str:
    if one.second:
        return f"{one.second} gets them instead."
    if one.others:
        return "No second route is set: what reached no one else goes to those who get all."
    return "No second route is set, and no one else gets all, so they reach no one."


def _notifications(now: Situation) -> Iterator[Problem]:
    for one in now.unreachable[:BROKEN_SHOWN]:
        yield Problem(
            name=f"unreachable:{one.name}",
            severity=WARNING if one.second else BAD,
            text=f"Notifications to recipient {one.name} ({one.address}) have failed for {span(one.seconds)}: "
            f"{one.error or 'no error is recorded'}. {_instead(one)}",
            remedy="Correct its address or the server behind it, and send a test. This ends with the next delivery that "
            "succeeds.",
            lasted=timedelta(seconds=one.seconds),
        )
    for unread in now.unread_inboxes[:BROKEN_SHOWN]:
        yield Problem(
            name=f"unread-inbox:{unread.name}",
            severity=WARNING,
            text=f"No user can read what is sent to recipient {unread.name} ({unread.address}): there is no active user of this name "
            "who may log in to the admin.",
            remedy="Give the recipient another address, delete it, or create the user.",
        )
    if now.unknown_deliveries:
        yield Problem(
            name="unknown-deliveries",
            severity=WARNING,
            text=f"{count(now.unknown_deliveries, 'delivery').replace('deliverys', 'deliveries')} of unknown outcome: handed "
            "over, and never confirmed.",
            remedy="Ask the recipients, and record under Deliveries whether each arrived or should be sent again.",
        )
    for name in now.unknown_names[:BROKEN_SHOWN]:
        yield Problem(
            name=f"unknown-recipient:{name}",
            severity=WARNING,
            text=f"Agents have sent notifications to {name!r} in the last day, and no recipient or group has that name.",
            remedy="Create the recipient or group, or correct `to=` in the agent.",
        )


def _subscriptions(now: Situation) -> Iterator[Problem]:
    for one in now.subscriptions[:BROKEN_SHOWN]:
        lasted = timedelta(seconds=one.seconds or 0)
        if one.disabled_reason:
            yield Problem(
                name=f"subscription-disabled:{one.slug}",
                severity=BAD,
                text=f"Subscription {one.slug} ({one.address}) was disabled: {one.disabled_reason}. No event is sent to it.",
                remedy="Correct its URL or the endpoint, enable the subscription, and redeliver what failed; or disable it "
                "yourself, or delete it, if it is not needed any more.",
            )
        else:
            yield Problem(
                name=f"subscription-failing:{one.slug}",
                severity=WARNING,
                text=f"Every attempt to send events to subscription {one.slug} ({one.address}) has failed for "
                f"{span(lasted.total_seconds())}: {one.error}. They are repeated.",
                remedy="Correct its URL or the endpoint. This ends with the next event that is delivered; after 5 days without "
                "one the subscription is disabled.",
                lasted=lasted,
                alarm_after=FAILING,
            )


def _prompt_agents(now: Situation) -> Iterator[Problem]:
    in_code = {agent.name for agent in registry.agents_in_code()}
    tools = toolbox.names()
    for one in now.prompt_agents:
        if one.is_deleted:
            continue
        if one.name in in_code:
            yield Problem(
                name=f"prompt-agent-name:{one.name}",
                severity=BAD,
                text=f"The code has an agent {one.name!r}, so the prompt agent of this name starts no more runs: its triggers wake "
                "the agent in code.",
                remedy="Rename the agent in code, or delete the prompt agent, which disables its triggers, and run "
                "`manage.py sync_agents`.",
            )
        if gone := [tool for tool in one.tools if tool not in tools]:
            yield Problem(
                name=f"prompt-agent-tools:{one.name}",
                severity=BAD,
                text=f"Prompt agent {one.name!r} names tools that are not registered: {', '.join(gone[:NAMED])}. Its runs fail.",
                remedy="Remove them from its tools, or install the app that registers them (WAKEFUL_APPS).",
            )
