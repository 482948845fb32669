"""Keeps a daily note of what was done: a file for each day below the first of WAKEFUL_WORK_ROOTS, which people may edit.

The day is that of WAKEFUL_ZONE, and so should be its schedule: change that on its page in the admin.
"""

from datetime import datetime, timedelta
from typing import Any

from agents import AgentRun, Fire, GateRun, Permanent, Quiet, agent, on
from agents.kernel.installation import facts
from agents.work_notes import LENGTH, append_note

DAY = timedelta(days=1)
LONGEST = 7 * DAY  # after a pause
MOST = 30  # agents, and causes of failures


def anything_done(run: GateRun) -> Fire | Quiet:
    """Fires if an agent's run has finished since the last note."""
    now = run.now()
    since = max(datetime.fromisoformat(run.last), now - LONGEST) if run.last else now - DAY
    done = [one for one in facts.finished(since, now) if one.agent != "notes-keeper"]
    if not done:
        return Quiet("no run has finished since the last note")
    busiest = sorted(done, key=lambda one: (-one.runs, one.agent))
    lines = [
        f"- {one.agent}: {one.runs} runs{f', {one.failed} failed' if one.failed else ''}" for one in busiest[:MOST]
    ]
    if len(busiest) > MOST:
        lines.append(f"- and {len(busiest) - MOST} agents more")
    failed = facts.failed_runs(now - since, MOST)
    lines += [f"- failed: {one.agent}, {one.count} ×: {' '.join(one.error.split())[:150]}" for one in failed]
    text = f"done since {since:%Y-%m-%d %H:%M} UTC:\n" + "\n".join(lines)
    return Fire("runs have finished", data=text[: LENGTH - 1], state=now.isoformat())


@agent("notes-keeper", durable=True, triggers=[on.cron("55 23 * * *")], gate=anything_done, retries=3)
def notes_keeper(run: AgentRun) -> Any:
    """Appends to the note of the day what agents have done and what failed. It writes nothing on a day without runs."""
    if not run.fired:
        return None
    return run.step("write the note", write, run, run.fired.data, effect="idempotent")


def write(run: AgentRun, text: str) -> str:
    """Permanent: the file may not be written."""
    try:
        return append_note(text, at=run.event.time, by=run.agent, key=run.idempotency_key)
    except ValueError as refused:
        raise Permanent(str(refused)) from refused
