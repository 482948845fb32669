"""Put the rooms of this tree, `agents runs triggers config`, below `wakeful` in the wheel: setuptools calls `Namespaced` (pyproject.toml).

In an environment of many packages their names are taken: `agents` is the OpenAI Agents SDK, `config` the settings of many a project. The
code is the same but for the names of modules, in imports and in strings. The labels of the apps stay, so tables and migrations do too.
"""

import ast
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from setuptools.command.build_py import build_py  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("agents", "runs", "triggers", "config")
BESIDE = (
    "templates",
    "docs",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
)  # what settings.BASE_DIR has beside them
PACKAGE = "wakeful"
# Strings that are names of modules or of what is in them, some of several, or the beginning of such a name.
WORD = r"[A-Za-z_][\w]*(?:\.\w+)+(?::\w+)?\.?"
WORDS = re.compile(rf"{WORD}(?:\s+{WORD})*\s*")
IN_ROOM = re.compile(rf"(?<![\w./-])(?:{'|'.join(ROOMS)})(?:\.\w+)+")

Edit = tuple[int, int, str]  # from, to, the new text; places in the file


class Namespaced(build_py):  # type: ignore[misc]  # setuptools comes without types
    """Copies the rooms, with the names of their modules changed."""

    def run(self) -> None:
        target = Path(self.build_lib) / PACKAGE
        shutil.rmtree(target, ignore_errors=True)
        for room in (PACKAGE, *ROOMS):
            for file in files_of(ROOT / room):
                new = target / (file.relative_to(ROOT / PACKAGE) if room == PACKAGE else file.relative_to(ROOT))
                new.parent.mkdir(parents=True, exist_ok=True)
                if file.suffix == ".py":
                    new.write_text(namespaced(file.read_text(), in_migrations="migrations" in file.parts))
                else:
                    shutil.copyfile(file, new)
        for name in BESIDE:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target / name)
            else:
                shutil.copyfile(ROOT / name, target / name)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [str(file) for file in files_of(Path(self.build_lib) / PACKAGE)]

    def get_source_files(self) -> list[str]:
        return []


def files_of(folder: Path) -> Iterator[Path]:
    return (file for file in sorted(folder.rglob("*")) if file.is_file() and "__pycache__" not in file.parts)


def namespaced(source: str, *, in_migrations: bool = False) -> str:
    """The source of a module with the names of the rooms' modules below the package. In migrations, a string such as "agents.state" is
    the name of a model."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    written = source.encode()

    def place(line: int, column: int) -> int:
        return starts[line - 1] + column

    for start, end, text in sorted(set(edits(ast.parse(source), written, place, in_migrations)), reverse=True):
        written = written[:start] + text.encode() + written[end:]
    return written.decode()


def edits(tree: ast.AST, written: bytes, place: Any, in_migrations: bool) -> Iterator[Edit]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr | ast.stmt):
            continue
        start, end = place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module and is_room(node.module):
            yield start, start + len("from "), f"from {PACKAGE}."
        elif isinstance(node, ast.Import) and any(is_room(one.name) for one in node.names):
            yield start, end, "; ".join(line for one in node.names for line in imported(one))
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            old = written[start:end].decode()
            new = with_modules(old, node, in_migrations)
            if new != old:
                yield start, end, new
        for name in bare_names(node):
            start = place(name.lineno, name.col_offset)
            yield start + 1, start + 1, f"{PACKAGE}."


def is_room(name: str) -> bool:
    return name.partition(".")[0] in ROOMS


def imported(one: ast.alias) -> Iterator[str]:
    """Statements that bind what this import binds."""
    if not is_room(one.name):
        yield f"import {one.name}" + (f" as {one.asname}" if one.asname else "")
    elif one.asname:
        yield f"import {PACKAGE}.{one.name} as {one.asname}"
    else:
        yield f"import {PACKAGE}.{one.name}"
        yield f"from {PACKAGE} import {one.name.partition('.')[0]}"


def with_modules(old: str, node: ast.Constant | ast.JoinedStr, in_migrations: bool) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and WORDS.fullmatch(part.value):
            for word in {found[0] for found in IN_ROOM.finditer(part.value)}:
                if exists(word) and (not in_migrations or ".migrations." in word):
                    old = re.sub(rf"(?<![\w.]){re.escape(word)}(?!\w)", f"{PACKAGE}.{word}", old)
    return old


def bare_names(node: ast.AST) -> Iterator[ast.Constant]:
    """A room as a string: among the apps, as the name of an app, and as that of Celery's app."""
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        if node.targets[0].id == "INSTALLED_APPS" and isinstance(node.value, ast.List):
            found = node.value.elts
        elif node.targets[0].id == "name":
            found = [node.value]
    elif isinstance(node, ast.List):
        found = [two for one, two in zip(node.elts, node.elts[1:], strict=False) if is_constant(one, ("-A",))]
    yield from (one for one in found if is_constant(one, ROOMS))  # type: ignore[misc]


def is_constant(node: ast.expr, values: tuple[str, ...]) -> bool:
    return isinstance(node, ast.Constant) and node.value in values


@cache
def exists(name: str) -> bool:
    """Whether this is a module of a room, or something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:count])
        if path.is_dir():
            path /= "__init__.py"
        else:
            path = path.with_name(f"{path.name}.py")
        if path.is_file():
            return count == len(parts) or parts[count] in names_in(path)
    return False


@cache
def names_in(path: Path) -> frozenset[str]:
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {one.asname or one.name for one in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id for one in targets if isinstance(one, ast.Name)}
    return frozenset(found)
