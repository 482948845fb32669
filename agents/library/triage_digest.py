from typing import Any

from agents import AgentRun, agent, on

EMPTY: dict[str, Any] = {"issues": 0, "labels": {}, "priorities": {}}


# It counts, so its runs must not overlap: `queue` without a key means one run of the trigger at a time.
@agent("triage-digest", triggers=[on.event("issue.triaged", source="run")], overlap="queue")
def triage_digest(run: AgentRun) -> dict[str, Any]:
    """Counts triaged issues by label and priority, and notifies a person of urgent ones."""
    issue = run.event.data
    digest = counted(run.state.get("digest", EMPTY), issue)
    run.state.set("digest", digest)
    if issue["priority"] == "urgent":
        run.notify(f"Urgent issue {run.event.subject}: {issue['title']} {issue['url']}".strip(), urgency="high")
    return digest


def counted(digest: dict[str, Any], issue: dict[str, Any]) -> dict[str, Any]:
    """The digest plus one issue."""
    return {
        "issues": digest["issues"] + 1,
        "labels": _one_more(digest["labels"], *issue["labels"]),
        "priorities": _one_more(digest["priorities"], issue["priority"]),
    }


def _one_more(counts: dict[str, int], *names: str) -> dict[str, int]:
    return counts | {name: counts.get(name, 0) + 1 for name in names}
