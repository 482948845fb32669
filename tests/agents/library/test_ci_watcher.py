"""The agent ci-watcher, at a server with GitHub's addresses and answers."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from agents import Fire, Quiet
from agents.agent import Agent
from agents.guards.addresses import networks_of
from agents.kernel import connecting
from agents.kernel.connecting import Lease
from agents.library import ci_watcher as library
from agents.library.ci_watcher import ci_watcher, outcome_of
from agents.testing import ask_gate, run_agent
from runs.actions.checklists import ItemEdit, create_checklist
from tests.support.answering import answering

pytestmark = pytest.mark.django_db

ONE, TWO = "1" * 40, "2" * 40
GOOD = {"name": "tests", "status": "completed", "conclusion": "success"}
BAD = {"name": "tests", "status": "completed", "conclusion": "failure"}
RUNNING = {"name": "tests", "status": "in_progress", "conclusion": None}


class GitHub:
    """A repository ada/shop, whose branch main has a commit with checks."""

    def __init__(self) -> None:
        self.commit, self.status = ONE, 200
        self.runs: list[dict[str, Any]] = [GOOD]
        self.asked: list[tuple[str, str]] = []

    def answer(self, path: str, page: int = 1) -> Any:
        if path in ("/repos/ada/shop/commits/main", "/repos/ada/shop/commits/HEAD"):
            return {"sha": self.commit}
        if path == f"/repos/ada/shop/commits/{self.commit}/check-runs":
            return {"total_count": len(self.runs), "check_runs": self.runs[100 * (page - 1) : 100 * page]}
        return {"state": "success", "total_count": 0, "statuses": []} if path.endswith("/status") else None

    def serve(self) -> ThreadingHTTPServer:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                page = int(parse_qs(query).get("page", ["1"])[0])
                hub.asked.append((path, self.headers["Authorization"]))
                found = hub.answer(path, page)
                body = json.dumps(found).encode()
                self.send_response(hub.status if found is not None else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHub]:
    hub = GitHub()
    server = hub.serve()
    host = f"127.0.0.1:{server.server_address[1]}"

    def lease(name: str, /, *, refused: str = "", may_retry: bool = True) -> Lease:
        return Lease(token="token-of-github-1234", hosts=[host], networks=networks_of(["127.0.0.0/8"]))

    monkeypatch.setattr(connecting._port, "lease", lease)
    monkeypatch.setattr(library, "API", f"http://{host}")
    with answering(server):
        yield hub


def said(agent: Agent = ci_watcher) -> list[str]:
    answer = ask_gate(agent)
    return [notice.text for notice in run_agent(agent, fired=answer).notifications] if isinstance(answer, Fire) else []


def test_a_failure_is_said_once_for_a_commit_and_its_end_once(hub: GitHub) -> None:
    assert isinstance(ask_gate(ci_watcher), Quiet)
    create_checklist("ci-watcher", items=[ItemEdit(text="ada/shop@main")], by="ada")

    assert said() == []
    hub.runs = [BAD, RUNNING]
    assert said() == ["CI: ada/shop@main fails at 1111111111: tests"]
    assert said() == []
    hub.commit, hub.runs = TWO, [RUNNING]
    assert said() == []
    hub.runs = [GOOD]
    assert said() == ["CI: ada/shop@main passes again, at 2222222222"]
    assert said() == []
    assert {token for _, token in hub.asked} == {"Bearer token-of-github-1234"}


def test_a_failure_among_hundreds_of_checks_is_found(hub: GitHub) -> None:
    checklist = create_checklist("ci-watcher", items=[ItemEdit(text="ada/shop@main")], by="ada")
    hub.runs = [GOOD] * 230 + [BAD]
    assert said() == ["CI: ada/shop@main fails at 1111111111: tests"]

    hub.runs = [GOOD] * 1_001
    assert said() == []
    assert "more than 1,000 checks" in checklist.items.get().last_text


def test_what_cannot_be_read_fails_its_item_alone(hub: GitHub) -> None:
    texts = ["ada/other", "the shop", "ada/shop@../../x", "ada/shop"]
    checklist = create_checklist("ci-watcher", items=[ItemEdit(text=text) for text in texts], by="ada")

    assert said() == []

    outcomes = [(item.last_outcome, item.last_text) for item in checklist.items.all()]
    assert [outcome for outcome, _ in outcomes] == ["failed", "failed", "failed", "ok"]
    assert "GitHub answers 404" in outcomes[0][1] and "names no branch" in outcomes[1][1]


def test_a_server_that_fails_is_a_failed_item_and_no_news(hub: GitHub) -> None:
    hub.status = 502
    checklist = create_checklist("ci-watcher", items=[ItemEdit(text="ada/shop")], by="ada")

    assert said() == []
    assert checklist.items.get().last_outcome == "failed"


def test_statuses_of_older_services_count() -> None:
    status = {"context": "ci/old", "state": "failure"}

    assert outcome_of([GOOD], [status]) == {"state": "failed", "names": ["ci/old"]}
    assert outcome_of([], [{"context": "x", "state": "pending"}])["state"] == "running"
    assert outcome_of([], []) == {"state": "none", "names": []}
