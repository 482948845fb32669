"""The sessions of a durable run: read-only as long as its body runs, and no other sessions."""

import contextlib
from threading import Event, Thread

import psycopg
import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, connections

from agents import AgentRun
from runs.db.session import read_only
from runs.db.sql import fetch
from runs.models import Step
from tests.support.durable import Lab, lab

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_session_that_dies_before_the_body_leaves_no_read_only_process_behind() -> None:
    end_session()
    with pytest.raises(OperationalError), read_only("wakeful:run:1"):
        pass
    connection.close()

    assert fetch("SHOW default_transaction_read_only") == [("off",)]


def test_another_database_of_the_project_is_not_changed(lab: Lab) -> None:
    other = connections["default"].copy(alias="other")

    def body(run: AgentRun) -> list[str]:
        with other.cursor() as cursor:
            cursor.execute("SHOW default_transaction_read_only")
            return list(cursor.fetchone())

    run = lab.run(body)
    other.close()

    assert run.result == ["off"]


def test_a_thread_that_outlives_the_body_commits_nothing(lab: Lab) -> None:
    may_go_on = Event()

    def straggle(run: AgentRun) -> None:
        def late() -> None:
            may_go_on.wait(5)
            make_group("late")

        with contextlib.suppress(BaseException):
            run.step("late", late, key="1")
        with contextlib.suppress(BaseException):
            run.step("later", lambda: make_group("later"), key="1")
        connection.close()

    threads: list[Thread] = []

    def body(run: AgentRun) -> None:
        run.step("first", lambda: make_group("first"))
        threads.append(Thread(target=straggle, args=[run]))
        threads[0].start()

    run = lab.run(body)
    may_go_on.set()
    threads[0].join()

    assert run.status == "succeeded"
    assert [group.name for group in Group.objects.all()] == ["first"]
    assert [step.key for step in Step.objects.all()] == ["first"]


def make_group(name: str) -> None:
    Group.objects.create(name=name)


def end_session() -> None:
    """The server ends this thread's session."""
    connection.ensure_connection()
    info = connection.connection.info
    with psycopg.connect(info.dsn, password=info.password, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [info.backend_pid])
