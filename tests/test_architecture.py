"""The walls of the house: who may import whom, who alone may write what. Read from the source, nothing is run."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("config", "triggers", "runs", "agents")  # each may import the ones after it
FILES = sorted(
    path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py") if "migrations" not in path.parts
)
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base_service"}
# What agents need at import: themselves, the standard library, and a logger.
LEAN = "import agents, sys; sys.exit('django.conf' in sys.modules and 'importing agents imports Django')"


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse((ROOT / file).read_text(), str(file))))


def imports_of(file: Path) -> Iterator[str]:
    """Every module the file imports anywhere in it, by its full name."""
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = file.parts[: len(file.parts) - node.level] if node.level else ()
            module = ".".join([*package, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def texts_in(file: Path) -> Iterator[str]:
    for node in nodes_of(file):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def writes(file: Path, model: str) -> bool:
    """Does it create rows of the model, by its manager (`Model.objects.create`) or its class (`Model(...)`)?"""
    for node in nodes_of(file):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == model:
            return True
        if isinstance(node.func, ast.Attribute) and "create" in node.func.attr:
            manager = node.func.value
            if isinstance(manager, ast.Attribute) and isinstance(manager.value, ast.Name) and manager.value.id == model:
                return True
    return False


def inserts_into(file: Path, table: str) -> bool:
    return any(f"INSERT INTO {table} " in text for text in texts_in(file))


@pytest.mark.parametrize("file", FILES, ids=str)
def test_imports_go_one_way(file: Path) -> None:
    above = ROOMS[: ROOMS.index(file.parts[0])]

    wrong = [name for name in imports_of(file) if name.split(".")[0] in above]

    assert not wrong, f"{file} is in {file.parts[0]}, which must not know {wrong[0]}"


def test_no_room_of_the_project_imports_its_tests() -> None:
    assert not [str(file) for file in FILES if any(name.split(".")[0] == "tests" for name in imports_of(file))]


def test_what_an_agent_author_imports_needs_neither_settings_nor_a_database() -> None:
    bare = {name: value for name, value in os.environ.items() if name not in ("DJANGO_SETTINGS_MODULE", "DATABASE_URL")}

    done = subprocess.run(
        [sys.executable, "-c", LEAN], cwd=ROOT, env=bare, capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 0, done.stderr


def test_every_file_is_named_after_what_it_does() -> None:
    assert not [str(file) for file in FILES if VAGUE & {file.stem, *file.parts[:-1]}]


@pytest.mark.parametrize(
    ("model", "table", "writers"),
    [
        ("Event", "triggers_event", {"triggers/accept.py"}),
        ("Run", "runs_run", {"runs/enqueue.py"}),
        ("Attempt", "runs_attempt", {"runs/transitions/leave.py"}),
        ("ProcessedEvent", "runs_processedevent", {"runs/transitions/leave.py"}),
        ("AuditEntry", "runs_auditentry", {"runs/audit.py"}),
    ],
)
def test_one_file_alone_writes_new_rows_of_what_others_rely_on(model: str, table: str, writers: set[str]) -> None:
    # An agent's view of an event has the same name as the row.
    rows = [file for file in FILES if "agents.Event" not in set(imports_of(file)) and file.parts[0] != "agents"]

    found = {str(file) for file in rows if writes(file, model) or inserts_into(file, table)}

    assert found == writers
