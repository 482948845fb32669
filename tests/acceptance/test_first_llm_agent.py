"""The first LLM agent of docs/llm.md, as it stands there: its file, its event, its test."""

import re
from pathlib import Path

import pytest

from tests.support.stack import ROOT, StackMaker, eventually

PAGE = (ROOT / "docs" / "llm.md").read_text()
FILE = re.compile(r"`~/my-agents/tickets/(\w+\.py)`[^`]*?```python\n(.*?)```", re.DOTALL)
EVENT = re.compile(r"manage\.py emit (\S+) --data '(.*?)'")
TEST = re.compile(r"```python\n(from pydantic_ai\.models\.test.*?)```", re.DOTALL)
HEAD = "import pytest\nfrom tickets.agents import ticket_triage\npytestmark = pytest.mark.django_db\n"


@pytest.mark.chaos
def test_the_first_llm_agent_of_the_docs_works(make_stack: StackMaker, tmp_path: Path) -> None:
    app = tmp_path / "my-agents" / "tickets"
    app.mkdir(parents=True)
    (app / "__init__.py").touch()
    for name, code in FILE.findall(PAGE):
        (app / name).write_text(code)
    stack = make_stack(env={"WAKEFUL_APPS": "tickets", "PYTHONPATH": str(app.parent), "WAKEFUL_MODEL": "builtin"})
    stack.manage("prepare")
    stack.up()
    [(kind, data)] = EVENT.findall(PAGE)

    event = stack.manage("emit", kind, "--data", data).stdout.strip()

    ended = "SELECT result FROM runs_run WHERE %s = ANY(event_ids) AND status = 'succeeded'"
    [run] = eventually(lambda: stack.query(ended, event))
    assert run["result"]["topic"] == "billing"
    kinds = [row["kind"] for row in stack.query("SELECT kind FROM runs_step ORDER BY position")]
    assert kinds == ["llm", "model", "tool", "model"]
