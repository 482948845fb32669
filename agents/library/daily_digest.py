from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from agents import AgentRun, Fire, GateRun, Quiet, agent, on
from agents.kernel.installation import FailedRuns, OpenApproval, Trouble, facts

DAY = timedelta(days=1)
MOST = 10  # lines of a kind


def anything(run: GateRun) -> Fire | Quiet:
    counts = {
        "failed": len(facts.failed_runs(DAY)),
        "approvals": len(facts.open_approvals()),
        "troubles": len(facts.troubles()),
    }
    if not any(counts.values()):
        return Quiet("nothing failed, no question is open, and nothing is wrong")
    return Fire("there is something to do", data=counts)


@agent("daily-digest", triggers=[on.cron("0 7 * * *")], gate=anything)
def daily_digest(run: AgentRun) -> Any:
    """Notifies people once a day of what needs them: failed runs by cause, open approvals, and what is wrong. Else it is silent."""
    text = digest(facts.failed_runs(DAY), facts.open_approvals(), facts.troubles())
    if text:
        run.notify(text, topic="daily-digest")
    return run.fired.data if run.fired else None


def digest(failed: Sequence[FailedRuns], approvals: Sequence[OpenApproval], troubles: Sequence[Trouble]) -> str:
    """Empty if there is nothing to say."""
    parts = [
        _part("Failed in the last day", [f"{one.agent}: {one.error[:200]} ({one.count} ×)" for one in failed]),
        _part(
            "Waiting for an answer",
            [f"{one.agent}: {one.question[:200]} (since {one.asked_at:%Y-%m-%d %H:%M} UTC)" for one in approvals],
        ),
        _part("Wrong with the installation", [one.text[:300] for one in troubles]),
    ]
    return "\n\n".join(filter(None, parts))


def _part(title: str, lines: Sequence[str]) -> str:
    more = [f"- and {len(lines) - MOST} more"] if len(lines) > MOST else []
    shown = [f"- {' '.join(line.split())}" for line in lines[:MOST]]
    return "\n".join([f"{title}:", *shown, *more]) if lines else ""
