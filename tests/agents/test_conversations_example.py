"""The example of docs/conversations.md is an agent whose key is its thread."""

import re
from pathlib import Path
from typing import Any

import pytest

from agents import registry
from runs.models import Run
from tests.support.replying import slack_message, slack_source
from tests.support.triggers import make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules

pytestmark = pytest.mark.django_db(transaction=True)
PAGE = Path(__file__).parents[2] / "docs" / "conversations.md"


def test_the_messages_of_a_thread_have_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    monkeypatch.setattr(registry, "_agents", dict(registry._agents))
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(found[1], str(PAGE), "exec"), names)  # noqa: S102  (our own page)
    key = names["order_questions"].key
    make_trigger("order-questions", types=["visitor.came"], key=key, overlap="queue")
    source = slack_source(1)
    for fields in ({}, {"ts": "1700000009.000900", "thread_ts": "1700000000.000100"}, {"ts": "1700000010.000100"}):
        slack_message(source, **fields)

    dispatch(Rules())

    first, second, other = Run.objects.order_by("seq").values_list("key", flat=True)
    assert first == second != other
