"""What is done with the data of a running system: a person erased, a key changed, triggers moved, old rows pruned."""

import json

import pytest
from cryptography.fernet import Fernet

from tests.support.stack import SHOP, Answer, Stack, StackMaker, eventually
from triggers.api.tokens import ALL, ensure_token
from triggers.models import Source
from triggers.sources.secrets import add_secret

ADA = "ada@example.com"
SECRET = "a-secret-that-both-sides-know"
TABLES = ("triggers_event", "runs_run", "runs_attempt", "runs_notification", "triggers_decision", "runs_auditentry")


@pytest.fixture(scope="module")
def running(make_shared_stack: StackMaker) -> Stack:
    stack = make_shared_stack(env=SHOP, agents=True)
    with stack.orm():
        ensure_token("ci", stack.env["WAKEFUL_API_TOKEN"], [ALL])
    return stack.up(beat=False)


def tell_of_ada(stack: Stack) -> Answer:
    event = {
        "specversion": "1.0",
        "id": "1",
        "source": "shop",
        "type": "effect.wanted",
        "subject": ADA,
        "data": {"to": ADA},
    }
    headers = {
        "Authorization": f"Bearer {stack.env['WAKEFUL_API_TOKEN']}",
        "Content-Type": "application/cloudevents+json",
    }
    return stack.request("POST", "/api/v1/events/", body=json.dumps(event).encode(), headers=headers)


def everything_stored(stack: Stack) -> str:
    rows = [stack.query(f"SELECT row::text FROM {table} row") for table in TABLES]  # noqa: S608
    return json.dumps(rows)


@pytest.mark.chaos
def test_a_person_is_erased_and_nothing_is_done_twice(running: Stack) -> None:
    answer = tell_of_ada(running)
    assert answer.status == 202
    # Two agents on the event, and one on each event these emit.
    its_runs = "SELECT status FROM runs_run WHERE root_id = %s"
    event = answer.json()["event"]
    eventually(lambda: running.query(its_runs, event) == [{"status": "succeeded"}] * 3)
    assert ADA in everything_stored(running)

    counted = running.manage("erase", "--subject", ADA, "--dry-run").stdout
    erased = running.manage("erase", "--subject", ADA, "--yes").stdout

    assert (counted, erased) == ("2 events and 3 runs would be erased\n", "2 events and 3 runs erased\n")
    assert ADA not in everything_stored(running)
    again = tell_of_ada(running)
    assert (again.status, again.json()) == (200, {"event": event, "duplicate": True})
    replayed = running.manage("replay", event, check=False)
    assert (replayed.returncode, "has lost its payload" in replayed.stderr) == (1, True)
    assert len(running.query(its_runs, event)) == 3
    assert ADA not in everything_stored(running)


@pytest.mark.chaos
def test_the_encryption_key_is_changed_while_a_sender_goes_on(running: Stack) -> None:
    with running.orm():
        source = Source.objects.create(slug="sender", kind="bearer", settings={})
        add_secret(source, SECRET, by="test")
    headers = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"}

    def deliver(id: int) -> int:
        return running.request("POST", "/hooks/sender/", body=json.dumps({"id": id}).encode(), headers=headers).status

    assert deliver(1) == 202
    old, new = running.env["WAKEFUL_ENCRYPTION_KEYS"], Fernet.generate_key().decode()
    both, only_new = {"WAKEFUL_ENCRYPTION_KEYS": f"{new},{old}"}, {"WAKEFUL_ENCRYPTION_KEYS": new}

    assert running.manage("rotate_keys", "--check", check=False, env=both).returncode == 1
    assert "1 encrypted again" in running.manage("rotate_keys", env=both).stdout
    assert running.manage("rotate_keys", "--check", env=only_new).returncode == 0
    [web] = [process for process in running.processes if process.kind == "web"]
    web.stop()
    running.start("web", env=only_new)

    assert deliver(2) == 202
