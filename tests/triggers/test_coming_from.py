"""The agents of docs/coming-from.md, as they stand there, do what they did before."""

import re
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from agents import registry
from agents.testing import run_agent

pytestmark = pytest.mark.django_db

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "coming-from.md").read_text()
CODE = {
    (when, of): code
    for when, of, code in re.findall(r"```python\n# (before|after): ([\w-]+)\n(.*?)```", PAGE, re.DOTALL)
}
CALL = {"task": "shop.clean", "args": [1], "kwargs": {"a": 2}, "queue": "slow"}


@pytest.fixture(autouse=True)
def no_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_agents", {})


def read(when: str, of: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "coming_from"}
    exec(compile(CODE[when, of], f"{when} {of}", "exec"), names)  # noqa: S102  (our own page)
    return names


def result(of: str, agent: str, data: Any) -> Any:
    read("after", of)
    return run_agent(registry.get(agent), data=data).result


def test_each_product_has_its_section() -> None:
    products = {"cron", "django-celery-beat", "Celery", "APScheduler", "django-q2", "django-absurd"}

    assert {of for when, of in CODE if when == "after"} == products
    assert products <= set(re.findall(r"^## (.+)$", PAGE, re.MULTILINE))


@pytest.mark.parametrize(
    ("of", "agent", "data", "wanted"),
    [
        ("APScheduler", "prices", None, {"prices": 3}),
        ("django-q2", "digest", {"data": {"days": 7}}, {"days": 7}),
        ("django-absurd", "order", {"number": 5}, {"paid": 5}),
        ("Celery", "send-invoice", {"number": "7"}, "posted Invoice 7"),
        ("cron", "cron-job", {"data": {"command": "echo tickets"}}, {"code": 0, "output": "tickets\n", "errors": ""}),
    ],
)
def test_the_agent_works(of: str, agent: str, data: Any, wanted: Any) -> None:
    assert result(of, agent, data) == wanted


def test_the_task_of_celery_does_the_same() -> None:
    assert read("before", "Celery")["send_invoice"]("7") == result("Celery", "send-invoice", {"number": "7"})


def test_a_command_that_the_agent_does_not_know_is_not_run() -> None:
    with pytest.raises(Exception, match="none of COMMANDS"):
        result("cron", "cron-job", {"data": {"command": "rm -rf /"}})


def test_a_periodic_task_is_sent_to_the_broker_of_the_project() -> None:
    names = read("after", "django-celery-beat")

    done = run_agent(registry.get("celery-task"), data={"data": CALL})

    project: Celery = names["PROJECT"]
    with project.connection_for_read() as connection:
        message = connection.SimpleQueue("slow").get(timeout=5)
        assert message.headers["id"] == done.result["task"]
        assert (message.headers["task"], message.payload[:2]) == ("shop.clean", [[1], {"a": 2}])
        message.ack()
