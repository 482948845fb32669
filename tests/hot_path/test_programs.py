"""What each program loads, and the memory it holds at rest, at most, in `programs.txt`: started alone, as in production. The
dispatcher has sent a periodic task, for which it loads the code of all tasks: Beat fires one within minutes.

A change that raises a figure writes the file (WRITE=1 pytest tests/hot_path/test_programs.py) and gives the reason in its commit.
"""

import os
import re
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.stack import ROOT, Process, StackMaker, eventually

pytestmark = pytest.mark.acceptance

FILE = Path(__file__).with_name("programs.txt")
HEAD = "# program, modules of ours, of libraries, packages of these, MiB of its own at rest with its children"
PROGRAMS = ("web", "beat", "dispatcher", "sources", "worker")
IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| *(\S+)$", re.MULTILINE)
OURS = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
MODULES = 0.03  # a library may load one more by another version of Python
MEMORY = 0.25
# Of models, of brokers and of stores: for those who use them.
NEVER = {
    "pydantic_ai",
    "openai",
    "anthropic",
    "boto3",
    "botocore",
    "fastmcp",
    "nats",
    "confluent_kafka",
}
# To a queue that no worker of this test reads.
SEND_A_TASK = """
INSERT INTO runs_outboxmessage (topic, key, attempts, last_error, available_at, created_at, payload)
VALUES ('task', 'measured', 0, '', clock_timestamp(), clock_timestamp(), '{"task": "wakeful.tables", "args": [], "kwargs": {},
  "queue": "measured", "exchange": null, "routing_key": null, "headers": {}, "priority": null, "expires": null}')
"""

Figures = tuple[int, int, int, int]


def read() -> dict[str, Figures]:
    lines = [line.split() for line in FILE.read_text().splitlines()[1:]] if FILE.exists() else []
    return {
        program: (int(ours), int(others), int(packages), int(size)) for program, ours, others, packages, size in lines
    }


def write(figures: dict[str, Figures]) -> None:
    FILE.write_text(
        "\n".join(
            [HEAD, *(f"{program:10} {' '.join(f'{figure:5}' for figure in figures[program])}" for program in PROGRAMS)]
        )
        + "\n"
    )


def figures_of(process: Process) -> tuple[Figures, set[str]]:
    modules = set(IMPORTED.findall(process.output()))
    ours = {module for module in modules if module.split(".")[0] in OURS}
    others = {module for module in modules - ours if module.split(".")[0].lstrip("_") not in sys.stdlib_module_names}
    memory = sum(one.memory_full_info().uss for one in (psutil.Process(process.pid), *process.children()))
    return (len(ours), len(others), len({module.split(".")[0] for module in others}), round(memory / 2**20)), modules


def test_a_program_loads_and_holds_what_its_budget_says(make_stack: StackMaker) -> None:
    stack = make_stack(env={"PYTHONPROFILEIMPORTTIME": "1"})
    others = {program: stack.start(program, wait=False, by_itself=True) for program in PROGRAMS if program != "web"}
    for process in others.values():
        process.wait_ready()
    # It loads the client of the broker where it finds no dispatcher.
    started = {**others, "web": stack.start("web", by_itself=True)}
    stack.request("GET", "/admin/login/")  # the first request loads the pages
    stack.query(SEND_A_TASK)
    eventually(lambda: not stack.query("SELECT FROM runs_outboxmessage WHERE topic = 'task'"))
    if os.environ.get("WRITE"):
        time.sleep(20)  # some modules are loaded at the first look
        write({program: figures_of(process)[0] for program, process in started.items()})

    for program, kept in read().items():
        found, modules = figures_of(started[program])
        assert all(figure <= most * (1 + MODULES) for figure, most in zip(found[:3], kept[:3], strict=True)), (
            program,
            found,
        )
        assert found[3] <= kept[3] * (1 + MEMORY), (program, found)
        assert not modules & NEVER, (program, modules & NEVER)
