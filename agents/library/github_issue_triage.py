"""Labels, a priority and a likely duplicate for every new GitHub issue: by readable rules, and by a model only where the rules
say nothing."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from agents import AgentRun, Permanent, agent, on

from .models import IssueTriage

Priority = IssueTriage.Priority

RULES = {
    "security": r"vulnerab|\bcve-\d|\bxss\b|injection|leak(s|ed)? (secret|token|password)",
    "data-loss": r"data loss|lost (all|my|our) data|corrupt|deletes? (all|everything)",
    "crash": r"crash|traceback|panic|segfault|core dump|unhandled exception",
    "bug": r"crash|traceback|panic|segfault|\bbug\b|broken|regression|does(n.t| not) work|error",
    "performance": r"\bslow|latency|memory leak|high cpu|times? out",
    "feature": r"feature request|would be (nice|great|useful)|please (add|support)|support for",
    "docs": r"\bdocs?\b|documentation|readme|typo",
    "question": r"^how (do|can|to|would)\b|\bis it possible\b|\?\s*$",
}
PATTERNS = {label: re.compile(rule, re.IGNORECASE | re.MULTILINE) for label, rule in RULES.items()}
# The first of its labels decides on an issue's priority.
PRIORITIES = {
    "security": Priority.URGENT,
    "data-loss": Priority.URGENT,
    "crash": Priority.HIGH,
    "bug": Priority.NORMAL,
    "performance": Priority.NORMAL,
    "feature": Priority.LOW,
    "docs": Priority.LOW,
    "question": Priority.LOW,
}
NOISE = {
    "a", "an", "and", "are", "as", "at", "be", "for", "from", "in", "is", "it", "of", "on", "the", "to", "when", "with",
}  # fmt: skip
ALIKE = 0.6  # share of their words that two titles must have in common
COMPARED = 500  # newest issues of a repository that a title is compared with


@dataclass(frozen=True, kw_only=True)
class Issue:
    repository: str
    number: int
    title: str
    body: str
    url: str
    labels: frozenset[str]


# One key per repository, so that of two issues that arrive together the second sees the first.
@agent(
    "github-issue-triage",
    durable=True,
    triggers=[on.webhook("github", "issues.opened", "issues.reopened", "issues.edited")],
    key="event.data.repository.full_name",
)
def github_issue_triage(run: AgentRun) -> dict[str, Any]:
    """Finds what a new GitHub issue is about, how much it matters, and whether it was reported before."""
    issue = read_issue(run.event.data)
    labels = labels_for(f"{issue.title}\n{issue.body}")
    priority = priority_of(labels)
    if not labels:
        # Importing pydantic-ai takes most of a second, and only a worker that asks a model needs it.
        from .issue_triager import triager

        verdict = run.llm(triager, "Triage this issue.", untrusted={"title": issue.title, "body": issue.body}).output
        labels, priority = verdict.labels, Priority(verdict.priority)
    triaged: dict[str, Any] = run.step("record", record, run, issue, labels, priority)
    return triaged


def record(run: AgentRun, issue: Issue, labels: Collection[str], priority: Priority) -> dict[str, Any]:
    """Store the verdict and pass it on."""
    verdict = {
        "title": issue.title,
        "url": issue.url,
        "labels": [label for label in labels if label not in issue.labels],
        "priority": priority,
        "duplicate_of": duplicate_of(issue),
    }
    IssueTriage.objects.update_or_create(repository=issue.repository, number=issue.number, defaults=verdict)
    triaged = {"repository": issue.repository, "number": issue.number, **verdict}
    run.emit("issue.triaged", triaged, subject=f"{issue.repository}#{issue.number}")
    return triaged


def read_issue(data: Any) -> Issue:
    """The issue of a webhook's payload; Permanent if it holds none."""
    try:
        issue = data["issue"]
        return Issue(
            repository=data["repository"]["full_name"],
            number=issue["number"],
            title=issue["title"],
            body=issue["body"] or "",
            url=issue["html_url"],
            labels=frozenset(label["name"] for label in issue["labels"]),
        )
    except (TypeError, KeyError) as error:
        raise Permanent(f"not the payload of a GitHub `issues` event: {error!r}") from error


def labels_for(text: str) -> list[str]:
    return [label for label, pattern in PATTERNS.items() if pattern.search(text)]


def priority_of(labels: Collection[str]) -> Priority:
    return next((priority for label, priority in PRIORITIES.items() if label in labels), Priority.NORMAL)


def duplicate_of(issue: Issue) -> int | None:
    """The number of the most similar earlier issue of the repository, if one is similar enough."""
    earlier = IssueTriage.objects.filter(repository=issue.repository, number__lt=issue.number).order_by("-number")
    titles = earlier.values_list("number", "title")[:COMPARED]
    likeness, number = max(((alike(issue.title, title), number) for number, title in titles), default=(0.0, 0))
    return number if likeness >= ALIKE else None


def alike(one: str, other: str) -> float:
    """The share of their words that two titles have in common, from 0 to 1."""
    left, right = words(one), words(other)
    return len(left & right) / len(left | right) if left and right else 0.0


def words(title: str) -> set[str]:
    found: Iterable[str] = re.findall(r"\w+", title.lower())
    return {word for word in found if word not in NOISE}
