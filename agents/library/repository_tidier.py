"""Looks at git repositories for branches that nothing waits for any more, and drafts the commands that would delete them. It deletes
nothing. Its checklist names the repositories, a folder below WAKEFUL_WORK_ROOTS each, such as /data/agents/shop.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from shlex import quote
from typing import Any

from agents import AgentRun, Permanent, StepFailed, agent, on
from agents.checklists.run_checklist import Checked
from agents.heartbeats.due_items import due_items
from agents.work_git import Repository

MERGED_FOR = timedelta(days=14)
STALE_FOR = timedelta(days=90)
KEPT = {"main", "master", "develop", "trunk"}
MOST = 30  # branches of a kind


@agent("repository-tidier", durable=True, triggers=[on.cron("0 8 * * mon")], gate=due_items, retries=1)
def repository_tidier(run: AgentRun) -> Any:
    """Once a week, sends people the branches that are merged or long untouched, with the commands to delete them; nothing if these are
    those of the last time."""
    checked = []
    for item in run.checklist.due():
        try:
            drafted = run.step("look", look, item.text.strip(), run.now().isoformat(), key=item.id, effect="read")
        except StepFailed as failed:
            checked.append(Checked(item.id, "failed", str(failed)))
            continue
        key = f"item:{item.id}"
        if drafted and drafted != run.state.get(key, ""):
            run.notify(drafted, topic=f"repository:{item.id}")
        if drafted != run.state.get(key, ""):
            run.state.set(key, drafted)
        checked.append(Checked(item.id, "news" if drafted else "ok", drafted))
    run.checklist.record(*checked)
    return [{"item": one.item, "outcome": one.outcome} for one in checked]


def look(path: str, now: str) -> str:
    """The draft for a repository; empty: there is nothing to tidy. Permanent: it may not be read."""
    try:
        repository = Repository(path)
        head = repository.git("rev-parse", "--abbrev-ref", "HEAD").strip()
        lines = repository.branches().split("\n")  # no other character of a subject ends a line
    except ValueError as refused:
        raise Permanent(str(refused)) from refused
    return draft_of(path, lines, head, datetime.fromisoformat(now))


def draft_of(path: str, lines: Sequence[str], head: str, now: datetime) -> str:
    merged, stale = [], []
    for line in lines:
        name, at, *_ = [*line.split(" "), ""]
        if name in KEPT or name == head:
            continue
        try:
            age = now - datetime.fromisoformat(at)
        except (ValueError, TypeError):  # the end of a list that was cut
            continue
        if line.endswith(" [merged]") and age >= MERGED_FOR:
            merged.append(name)
        elif age >= STALE_FOR:
            stale.append(name)
    parts = [
        _part(f"Merged into {head}, and untouched for two weeks", path, "-d", merged),
        _part("Not merged, and untouched for 90 days; look at each first", path, "-D", stale),
    ]
    return f"Branches of {path} that could go:\n\n" + "\n\n".join(filter(None, parts)) if any(parts) else ""


def _part(title: str, path: str, flag: str, names: Sequence[str]) -> str:
    more = [f"and {len(names) - MOST} more"] if len(names) > MOST else []
    commands = [f"git -C {quote(path)} branch {flag} -- {quote(name)}" for name in sorted(names)[:MOST]]
    return "\n".join([f"{title}:", *commands, *more]) if names else ""
