"""The agent of docs/first-agent.md, as it stands there: its files, its commands, its test."""

import re
from pathlib import Path

import pytest

from tests.support.nurseries import nurseries
from tests.support.stack import ROOT, Stack, StackMaker, eventually

FILE = re.compile(r"`~/my-agents/stock/(\w+\.py)`[^`]*?```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def stack(make_stack: StackMaker, tmp_path: Path) -> Stack:
    app = tmp_path / "my-agents" / "stock"
    app.mkdir(parents=True)
    (app / "__init__.py").touch()
    for name, code in FILE.findall((ROOT / "docs/first-agent.md").read_text()):
        (app / name).write_text(code)
    return make_stack(env={"WAKEFUL_APPS": "stock", "PYTHONPATH": str(app.parent)})


@pytest.mark.chaos
def test_the_first_agent_of_the_docs_works(stack: Stack) -> None:
    stack.manage("makemigrations", "stock")
    nurseries.forget(stack.env)
    stack.manage("prepare")
    stack.up()
    ended = "SELECT result FROM runs_run WHERE %s = ANY(event_ids) AND status = 'succeeded'"

    event = stack.manage("emit", "stock.counted", "--data", '{"product": "tea", "count": 4}').stdout.strip()
    eventually(lambda: stack.query(ended, event) == [{"result": {"product": "tea", "count": 4}}])
    fired = stack.manage("fire", "stock-report").stdout.strip()
    eventually(lambda: stack.query(ended, fired) == [{"result": {"low": ["tea"]}}])

    assert stack.query("SELECT product, count FROM stock_level") == [{"product": "tea", "count": 4}]
    assert [notice["text"] for notice in stack.query("SELECT text FROM runs_notification ORDER BY id")] == [
        "Only 4 of tea left",
        "Running low: tea",
    ]
    eventually(lambda: stack.query("SELECT 1 FROM triggers_event WHERE type = 'stock.low'"))
    assert "Ran 2 tests" in stack.manage("test", "stock", "--noinput").stderr
