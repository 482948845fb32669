"""Watches whether the builds of branches pass at GitHub. It needs a connection with the name `github` that may read the repositories. Its
checklist names the branches, an item each: `owner/repository`, or `owner/repository@branch`.
"""

import re
from typing import Any
from urllib.parse import quote

from agents import AgentRun, Permanent, StepFailed, agent, on
from agents.checklists.run_checklist import Checked
from agents.heartbeats.due_items import due_items

API = "https://api.github.com"
CONNECTION = "github"
BRANCH = re.compile(r"(?P<repository>[\w.-]{1,100}/[\w.-]{1,100})(?:@(?P<branch>[\w./-]{1,200}))?")
BAD = {"failure", "timed_out", "cancelled", "action_required", "startup_failure", "error"}
MOST = 10  # names of checks
PER_PAGE = 100  # the most that GitHub gives
MOST_PAGES = 10


@agent(
    "ci-watcher", durable=True, connections=[CONNECTION], triggers=[on.heartbeat("10m", catch_up="skip")], gate=due_items, retries=1
)  # fmt: skip
def ci_watcher(run: AgentRun) -> Any:
    """Notifies people once when the newest commit of a branch fails its checks, and once when a later one passes."""
    checked = []
    for item in run.checklist.due():
        try:
            found = run.step("look", look, run, item.text.strip(), key=item.id, effect="read")
        except StepFailed as failed:
            checked.append(Checked(item.id, "failed", str(failed)))
            continue
        key = f"item:{item.id}"
        told = run.state.get(key, "")  # the commit whose failure people know
        text = ""
        if found["state"] == "failed" and told != found["commit"]:
            names = ", ".join(found["names"][:MOST])
            text = f"CI: {item.text} fails at {found['commit'][:10]}: {names}"
            run.state.set(key, found["commit"])
        elif found["state"] == "passed" and told:
            text = f"CI: {item.text} passes again, at {found['commit'][:10]}"
            run.state.set(key, "")
        if text:
            run.notify(text, topic=f"ci:{item.id}")
        checked.append(Checked(item.id, "news" if text else "ok", text))
    run.checklist.record(*checked)
    return [{"item": one.item, "outcome": one.outcome} for one in checked]


def look(run: AgentRun, text: str) -> dict[str, Any]:
    """The newest commit of a branch, whether its checks are "passed", "failed", "running" or "none", and the names of those that failed.
    Permanent: it names no branch, or GitHub does not show it."""
    named = BRANCH.fullmatch(text)
    if named is None or ".." in text:
        raise Permanent(f"{text[:100]!r} names no branch; write owner/repository or owner/repository@branch")
    path = f"{API}/repos/{named['repository']}/commits/{quote(named['branch'] or 'HEAD', safe='')}"
    with run.connection(CONNECTION) as http:
        commit = _read(http, path)["sha"]
        base = f"{API}/repos/{named['repository']}/commits/{commit}"
        runs = _all_of(http, f"{base}/check-runs", "check_runs")
        statuses = _all_of(http, f"{base}/status", "statuses")
    return {"commit": commit, **outcome_of(runs, statuses)}


def _all_of(http: Any, address: str, name: str) -> list[dict[str, Any]]:
    """Permanent: there are so many that one which failed could be missed."""
    found: list[dict[str, Any]] = []
    for page in range(1, MOST_PAGES + 1):
        answer = _read(http, f"{address}?per_page={PER_PAGE}&page={page}")
        found += answer[name]
        if len(found) >= answer["total_count"] or not answer[name]:
            return found
    raise Permanent(f"the commit has more than {PER_PAGE * MOST_PAGES:,} checks")


def outcome_of(runs: list[dict[str, Any]], statuses: list[dict[str, Any]]) -> dict[str, Any]:
    """Of check runs, and of statuses, which older services set."""
    failed = [str(one["name"])[:100] for one in runs if one["conclusion"] in BAD]
    failed += [str(one["context"])[:100] for one in statuses if one["state"] in ("failure", "error")]
    is_running = any(one["status"] != "completed" for one in runs) or any(one["state"] == "pending" for one in statuses)
    state = "failed" if failed else "running" if is_running else "passed" if runs or statuses else "none"
    return {"state": state, "names": sorted(set(failed))}


def _read(http: Any, address: str) -> Any:
    answer = http.get(address, headers={"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"})
    if answer.status_code in (401, 403, 404, 422):
        raise Permanent(f"GitHub answers {answer.status_code}: the connection may not read it, or it is not there")
    return answer.raise_for_status().json()
