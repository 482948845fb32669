"""A run uses a connection: its token is renewed beside the read-only session of the body, and stands in no row that the run leaves."""

from typing import Any

import pytest

from agents import AgentRun
from agents.kernel.connecting import MayUse
from runs.models import Connection, Step
from tests.support.connections import connected, everything_stored, later
from tests.support.durable import Lab
from tests.support.oauth_server import CLIENT_SECRET, OAuthServer

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_run_renews_a_token_and_leaves_none_behind(provider: OAuthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    made = connected(provider, left=-5)

    def read(run: AgentRun) -> Any:
        with run.connection("mail") as http:
            answer = http.get(f"{provider.url}/messages")
        return {"mail": answer.json()["mail"], "echo": answer.request.headers["Authorization"]}

    done = Lab(monkeypatch).run(
        lambda run: run.step("read", read, run, effect="read"), declared={"connections": MayUse(names={"mail": "mail"})}
    )

    assert (done.status, done.error) == ("succeeded", "")
    assert done.result == {"mail": ["one", "two"], "echo": "Bearer [secret]"}
    assert done.is_tainted
    assert len(provider.asked) == 1 and Step.objects.filter(run=done).count() == 1
    stored = everything_stored()
    assert not [secret for secret in [*provider.given, CLIENT_SECRET] if secret in stored]

    later(made, 4000)
    provider.status = 503
    again = Lab(monkeypatch).run(
        lambda run: run.step("read", read, run, effect="read"),
        declared={"connections": MayUse(names={"mail": "mail"})},
        policy={"retries": 3},
    )
    assert again.status == "queued" and again.due_at
    assert Connection.objects.get().failures == 1
