"""A trigger of the user's database can tell an agent's own write from any other: the session bears the run's name."""

from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from agents import Agent, AgentRun, registry
from runs.claim import claim_next
from runs.executor import execute
from runs.models import Worker
from tests.support.runs import make_run
from tests.support.triggers import make_event

pytestmark = pytest.mark.django_db

# As docs/agents.md has it.
ROW_TRIGGER = """
CREATE TABLE seen (name text, by text);
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('application_name') LIKE 'wakeful:%' THEN
    RETURN NULL;
  END IF;
  INSERT INTO seen VALUES (NEW.name, current_setting('application_name'));
  RETURN NULL;
END $$;
CREATE TRIGGER see AFTER INSERT ON auth_group FOR EACH ROW EXECUTE FUNCTION see();
"""


def write(run: AgentRun) -> None:
    Group.objects.create(name="an agent's")


def test_an_agents_own_write_is_distinguished_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._agents, "greeter", Agent(name="greeter", body=write))
    make_run(event_id=make_event().id)
    worker = Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)
    with connection.cursor() as cursor:
        cursor.execute(ROW_TRIGGER)
        Group.objects.create(name="a person's")

        claim = claim_next(worker.id, "default", {"greeter": "1"})
        assert claim is not None
        execute(claim)

        cursor.execute("SET application_name = 'test'")
        cursor.execute("SELECT name FROM seen")
        assert cursor.fetchall() == [("a person's",)]
    assert Group.objects.filter(name="an agent's").exists()
