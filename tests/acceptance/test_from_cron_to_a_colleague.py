"""docs/from-cron-to-a-colleague.md, from its first command to its last: its files, its commands, its test."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack import ROOT, Process, Stack, StackMaker, eventually

pytestmark = pytest.mark.sampled

PAGE = re.sub(r"\\\n\s*", "", (ROOT / "docs" / "from-cron-to-a-colleague.md").read_text())
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
FILE = re.compile(r"`~/my-agents/desk/(\w+\.py)`[^`]*?```python\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\.venv/bin/python manage\.py (.+)$", re.MULTILINE)
FETCH = re.compile(r"^curl -s http://127\.0\.0\.1:8000(\S+) -H \"Authorization: Bearer \$TOKEN\"$", re.MULTILINE)
SETTINGS = re.compile(r"^export (.+)$", re.MULTILINE)
CALM = {"WAKEFUL_ALARM_AFTER": "1h"}  # Beat does not run: no schedule fires while the guide is read
ENDED = "SELECT agent, result FROM runs_run WHERE %s::uuid = ANY(event_ids) AND status = 'succeeded'"
DECIDED = "SELECT outcome FROM triggers_decision WHERE event_id = %s"


class Reader:
    """A user who follows the page, section by section. `make run` is `restart`."""

    def __init__(self, stack: Stack, app: Path) -> None:
        self.stack, self.app = stack, app
        self.worker: Process | None = None

    def section(self, title: str) -> str:
        [found] = [section for section in SECTIONS if section.partition("\n")[0].endswith(title)]
        for name, code in FILE.findall(found):
            (self.app / name).write_text(code)
        return found

    def commands(self, section: str) -> list[str]:
        """What its commands print."""
        return [self.stack.manage(*shlex.split(line)).stdout for line in COMMAND.findall(section)]

    def restart(self) -> None:
        if self.worker is None:
            self.stack.manage("prepare")
            self.stack.start("web")
            self.stack.start("dispatcher")
            self.worker = self.stack.start("worker", concurrency=1)
        else:
            self.stack.manage("sync_agents")
            self.worker.stop()
            self.worker.restart()

    def ended(self, event: str) -> Any:
        return eventually(lambda: self.stack.query(ENDED, event.strip()))[0]["result"]

    def decided(self, event: str) -> str:
        return str(eventually(lambda: self.stack.query(DECIDED, event.strip()))[0]["outcome"])

    def fetch(self, section: str) -> list[Any]:
        return [self.stack.api("GET", path).json() for path in FETCH.findall(section)]


@pytest.fixture
def reader(make_stack: StackMaker, tmp_path: Path) -> Reader:
    app = tmp_path / "my-agents" / "desk"
    app.mkdir(parents=True)
    (app / "__init__.py").touch()
    [first, last] = SETTINGS.findall(PAGE)
    variables = dict(word.split("=") for word in [*first.split(), *last.split()])
    return Reader(make_stack(env={**variables, "PYTHONPATH": str(app.parent), "WAKEFUL_DEMO": "1", **CALM}), app)


@pytest.mark.chaos
def test_the_guide_works_from_its_first_command_to_its_last(reader: Reader) -> None:
    stack = reader.stack

    section = reader.section("The same as an agent")
    making, opening, counting, listing = COMMAND.findall(section)
    stack.manage(*making.split())
    reader.restart()
    assert reader.ended(stack.manage(*shlex.split(opening)).stdout) == {"ticket": 1}
    assert reader.ended(stack.manage(*counting.split()).stdout) == {"waiting": 1}
    assert "count-tickets" in stack.manage(*listing.split()).stdout
    sent = "SELECT channel FROM runs_delivery WHERE status = 'sent'"
    eventually(lambda: stack.query(sent) == [{"channel": "inbox"}])

    section = reader.section("silence costs nothing")
    reader.restart()
    first, second = COMMAND.findall(section)
    assert reader.ended(stack.manage(*first.split()).stdout) == {"waiting": 1}
    assert reader.decided(stack.manage(*second.split()).stdout) == "quiet"

    section = reader.section("a heartbeat")
    reader.restart()
    [event] = reader.commands(section)
    assert "The printer is on fire" in reader.ended(event)["text"]
    called = stack.query("SELECT kind FROM runs_step WHERE kind <> 'step' ORDER BY position")
    assert [row["kind"] for row in called] == ["llm", "model", "tool", "model", "tool", "model"]

    section = reader.section("Test it")
    assert "Ran 2 tests" in stack.manage(*COMMAND.findall(section)[0].split(), "--noinput").stderr

    section = reader.section("The right person at the right time")
    eventually(lambda: reader.fetch(section)[0]["results"][0]["status"] == "held")
    _, tested = reader.commands(section)
    assert "ada" in tested
    [deliveries] = reader.fetch(section)
    assert [(one["recipient"], one["status"]) for one in deliveries["results"]] == [
        ("ada", "sent"),
        ("WAKEFUL_NOTIFY_TO", "held"),
        ("WAKEFUL_NOTIFY_TO", "suppressed"),
        ("WAKEFUL_NOTIFY_TO", "sent"),
    ]

    section = reader.section("When something fails")
    *failing, repaired = reader.commands(section)
    assert reader.ended(repaired) == {"ticket": 2}
    [incident] = eventually(lambda: [one for one in reader.fetch(section)[0]["results"] if one["status"] == "closed"])
    assert (incident["name"], incident["count"], len(failing)) == ("take-ticket", 2, 2)

    made, tried = reader.commands(reader.section("A colleague without code"))
    assert "morning-desk" in made
    assert "The printer is on fire" in tried

    [night] = reader.fetch(reader.section("What ran overnight"))
    figures = {one["agent"]: (one["woken"], one["quiet"], one["failed"], one["spoke"]) for one in night["agents"]}
    assert figures["count-tickets"] == (3, 1, 0, 2)
    assert figures["take-ticket"] == (4, 0, 2, 0)
    assert figures["desk-watch"] == (1, 0, 0, 1)
    assert night["total"]["incidents"] == 1


def test_every_block_of_the_guide_is_done_by_the_test() -> None:
    """What is new on the page is new in the test: each line is one that it does, or one of the shell's."""
    shell = [
        r"mkdir -p ~/my-agents/desk",
        r"touch ~/my-agents/desk/__init__\.py",
        r"make run",
        r"export .*",
        r"TOKEN=\$\(.*\)",
        r"\*/30 .*",
    ]
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]

    assert lines
    done = [COMMAND.pattern, FETCH.pattern, *(f"^{line}$" for line in shell)]
    assert not [line for line in lines if not any(re.search(pattern, line) for pattern in done)]
    assert len(FILE.findall(PAGE)) == len(re.findall(r"^```python", PAGE, re.MULTILINE))
