from datetime import datetime, timedelta
from typing import Any

from agents import AgentRun, Fire, GateRun, Quiet, agent, on
from agents.kernel.durations import in_words
from agents.kernel.installation import OpenApproval, facts

FIRST, AGAIN = timedelta(hours=4), timedelta(days=1)
LAST_CALL = timedelta(hours=1)  # before its deadline, if it has stood for longer than twice this


def stale(run: GateRun) -> Fire | Quiet:
    """Fires when a question has waited for four hours, each day after that, and an hour before its deadline."""
    now = run.now()
    told: dict[str, int] = run.last or {}
    reminders = {str(one.id): reminders_by(one, now) for one in facts.open_approvals()}
    due = sorted(id for id, number in reminders.items() if number > told.get(id, 0))
    if not due:
        return Quiet("no question has waited long since its last reminder")
    return Fire(f"{len(due)} questions wait long", data=due, state={id: n for id, n in reminders.items() if n})


def reminders_by(approval: OpenApproval, now: datetime) -> int:
    """The number of reminders of a question that are due by now."""
    waited = now - approval.asked_at
    daily = (waited - FIRST) // AGAIN + 1 if waited >= FIRST else 0
    return daily + is_last_call(approval, now)


def is_last_call(approval: OpenApproval, now: datetime) -> bool:
    until = approval.until
    return until is not None and until - now <= LAST_CALL and until - approval.asked_at > 2 * LAST_CALL


@agent("approval-chaser", triggers=[on.heartbeat("15m", catch_up="skip")], gate=stale)
def approval_chaser(run: AgentRun) -> Any:
    """Reminds people of questions that wait long for an answer, and once more, urgently, before they expire."""
    now, due = run.now(), run.fired.data if run.fired else []
    for approval in facts.open_approvals():
        if str(approval.id) in due:
            run.notify(
                told(approval, now),
                urgency="high" if is_last_call(approval, now) else "normal",
                topic=f"approval:{approval.id}",
                link=approval.page,
            )
    return due


def told(approval: OpenApproval, now: datetime) -> str:
    left = f" It expires in {in_words(approval.until - now)}." if approval.until and approval.until > now else ""
    return (
        f"{approval.agent} has waited for an answer for {in_words(now - approval.asked_at)}: {approval.question}{left}"
    )
