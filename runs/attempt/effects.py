"""An agent's effects as rows, which are committed with its run or its step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from agents.guards.storable import storable
from agents.kernel.effects import Effects, Emission, ItemLook, Notice, Pace, Reply, Standing, Wake
from agents.models import taint_written
from runs.attempt.children import enqueue_children, runs_of
from runs.claim import Claim
from runs.db.sql import fetch
from runs.incidents.items import LOOKED_AT
from runs.notifications.replies import REPLY
from runs.ports import ports
from runs.transitions.outcome import NoticeRow, Outbound

EMITTED = "event"  # the outbox topic of emitted events
WAKEUP = "wakeup"
SCHEDULE = "schedule"
PACE = "pace"
MOST_URGENT = 3  # urgent notifications that one tainted run may send
URGENT = "SELECT count(*) FROM runs_notification WHERE run_id = %s::uuid AND urgency = 'high'"


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows that are written only if the fence of the run or step holds."""

    outbound: Sequence[Outbound] = ()
    notices: Sequence[NoticeRow] = ()


def rows_of(claim: Claim, effects: Effects) -> Rows:
    """The rows of these effects. Inserts children and taints values at once, in the caller's transaction, before its fence.
    Raises Permanent if an effect cannot be stored or a limit is exceeded."""
    if not effects:
        return Rows()
    if effects.wakes or effects.standings or effects.paces:
        ports.check_ahead(claim.trigger_id, effects)
    enqueue_children(claim, effects.children)
    taint_written(claim.agent, **effects.tainted)
    return Rows(
        outbound=[
            *(emitted(claim, emission) for emission in effects.emissions),
            *(_wakeup(claim, wake) for wake in effects.wakes),
            *(_reply(claim, reply) for reply in effects.replies),
            *(_schedule(claim, standing) for standing in effects.standings),
            *(_pace(claim, pace) for pace in effects.paces[-1:]),
            *([_looked_at(claim, effects.looks)] if effects.looks else []),
        ],
        notices=[
            NoticeRow(
                sender=claim.agent,
                text=storable(notice.text, "its notification"),
                urgency=notice.urgency,
                topic=storable(notice.topic, "the topic of its notification"),
                link=storable(notice.link, "the link of its notification") or f"run:{claim.run_id}",
                to=storable(list(notice.to), "the recipients of its notification"),
            )
            for notice in _calmed(claim, effects.notices)
        ],
    )


def _calmed(claim: Claim, notices: Sequence[Notice]) -> Sequence[Notice]:
    """Lower urgent notifications of a tainted run beyond MOST_URGENT to normal: untrusted text may make a model send
    them again and again.
    """
    if not any(notice.urgency == "high" and notice.is_tainted for notice in notices):
        return notices
    [(urgent,)] = fetch(URGENT, [claim.run_id])
    calmed = []
    for notice in notices:
        urgent += notice.urgency == "high"
        is_late = urgent > MOST_URGENT and notice.is_tainted and notice.urgency == "high"
        calmed.append(replace(notice, urgency="normal") if is_late else notice)
    return calmed


def check(claim: Claim, effects: Effects) -> None:
    """Validate effects without writing them. Raises Permanent if one cannot be stored or a limit is exceeded."""
    rows_of(claim, replace(effects, children=[]))
    if effects.children:
        runs_of(claim, effects.children)


def emitted(claim: Claim, emission: Emission) -> Outbound:
    key = f"{claim.run_id}:{emission.key}"
    payload = {
        "ce_id": key,
        "ce_source": f"agents/{claim.agent}",
        "type": emission.type,
        "subject": emission.subject,
        "data": emission.data,
        "root_id": str(claim.root_id),
        "cause_event_id": str(claim.event_ids[-1]) if claim.event_ids else None,
        "cause_run_id": str(claim.run_id),
        "depth": claim.depth + 1,
        "chain": [*claim.chain, claim.trigger or claim.agent],
        "is_tainted": emission.is_tainted,
    }
    return Outbound(topic=EMITTED, key=key, payload=storable(payload, f"the emitted event {emission.type!r}"))


def _wakeup(claim: Claim, wake: Wake) -> Outbound:
    data = {"name": wake.key, "data": wake.data, "reason": wake.reason, "is_tainted": wake.is_tainted}
    payload = storable(data, "the data of wake_in")
    return _to_trigger(claim, WAKEUP, payload, due_in=max(wake.after, ports.loop_spacing()))


def _reply(claim: Claim, reply: Reply) -> Outbound:
    payload = {"run": str(claim.run_id), "sender": claim.agent, "text": reply.text, "place": vars(reply.place)}
    return Outbound(topic=REPLY, key=str(claim.run_id), payload=storable(payload, "its reply"))


def _schedule(claim: Claim, standing: Standing) -> Outbound:
    every = standing.every.total_seconds() if standing.every else None
    payload = {"name": standing.name, "cron": standing.cron, "tz": standing.tz, "every": every}
    return _to_trigger(claim, SCHEDULE, payload)


def _pace(claim: Claim, pace: Pace) -> Outbound:
    payload = {"after": pace.after.total_seconds(), "reason": pace.reason}
    return _to_trigger(claim, PACE, storable(payload, "the reason of next_check"))


def _looked_at(claim: Claim, looks: Sequence[ItemLook]) -> Outbound:
    run = str(claim.run_id)
    payload = {"run": run, "agent": claim.agent, "looks": [vars(look) for look in looks]}
    return Outbound(topic=LOOKED_AT, key=run, payload=payload)


def _to_trigger(claim: Claim, topic: str, payload: dict[str, Any], due_in: timedelta = timedelta()) -> Outbound:
    """A message to the run's own trigger."""
    trigger = str(claim.trigger_id)
    payload = {"trigger": trigger, "run": str(claim.run_id), **payload}
    return Outbound(topic=topic, key=trigger, payload=payload, due_in=due_in)
