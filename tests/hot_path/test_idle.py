"""What a program with nothing to do asks of the database, by count, in `idle.txt`: the statements of each in six safety looks, which
are a minute by default.

A change that raises a figure writes the file (WRITE=1 pytest tests/hot_path/test_idle.py) and gives the reason in its commit.
"""

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.stack import Stack, StackMaker
from tests.support.statements import Statements, statements_of

FILE = Path(__file__).with_name("idle.txt")
HEAD = "# program, statements in six safety looks"
PROGRAMS = ("web", "dispatcher", "beat", "sources", "worker")
LOOK = 2.0  # seconds
LOOKS = 6
# A process rests once nothing has moved for a while.
SETTLES = 9 * LOOK
# A whole period may begin just before a look. A busy machine can only send less, but one that stood still reconnects.
EXTRA = 1
TRIES = 4


@pytest.fixture(scope="module")
def idle(make_shared_stack: StackMaker) -> Stack:
    """Everything is up, each process with its lease as by default and shorter looks, and has nothing to do."""
    env = {"WAKEFUL_SAFETY_LOOK": f"{LOOK:g}s", "WAKEFUL_LEASE_RENEW": f"{LOOK / 4:g}s"}
    stack = make_shared_stack(env=env, own_servers=True)
    for program in PROGRAMS:
        stack.start(program, env={"PGAPPNAME": program})
    time.sleep(SETTLES)
    return stack


def test_idle_programs_send_no_more_statements_than_their_budget(idle: Stack) -> None:
    counts = dict.fromkeys(PROGRAMS, 0)
    for _ in range(TRIES):
        found = count(idle)
        counts = by_program(found)
        if os.environ.get("WRITE") or not over(counts):
            break
    print(counts, *found.by_words.most_common(), sep="\n")
    if os.environ.get("WRITE"):
        write(counts)

    assert not over(counts)


def over(counts: dict[str, int]) -> dict[str, int]:
    """The programs that sent too many."""
    budget = read()
    return {program: sent for program, sent in counts.items() if sent > budget[program] + EXTRA}


def count(stack: Stack) -> Statements:
    assert stack.servers.postgres
    with statements_of(stack.servers.postgres) as found:
        time.sleep(LOOKS * LOOK)
    return found


def by_program(found: Statements) -> dict[str, int]:
    """Sessions with names of their own are the dispatcher's: a worker names its sessions for the runs that it executes."""
    sent = Counter[str]()
    for session, statements in found.by_session.items():
        sent["dispatcher" if session.startswith("wakeful:") else session] += statements
    return {program: sent[program] for program in PROGRAMS}


def read() -> dict[str, int]:
    lines = (
        [line.split() for line in FILE.read_text().splitlines() if not line.startswith("#")] if FILE.exists() else []
    )
    return {program: int(figure) for program, figure in lines}


def write(counts: dict[str, int]) -> None:
    FILE.write_text("\n".join([HEAD, *(f"{program:10} {sent:4}" for program, sent in counts.items())]) + "\n")
