"""The walls of the house: who may import whom, who alone may write what. Read from the source, nothing is run."""

import ast
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("config", "triggers", "runs", "agents")  # each may import the ones after it
FILES = sorted(
    path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py") if "migrations" not in path.parts
)
BENCH = sorted(path.relative_to(ROOT) for path in (ROOT / "bench").rglob("*.py"))
FOLDERS = sorted({file.parent for file in [*FILES, *BENCH]})
FRONT_DOORS = ROOT / "tests/front_doors.txt"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base_service"}
# What agents need at import: themselves, the standard library, and a logger.
LEAN = "import agents, sys; sys.exit('django.conf' in sys.modules and 'importing agents imports Django')"


# The floors of each room, the lowest first: an entry (a file or a folder) imports only from floors below its own.
FLOORS = {
    "agents": [
        "kernel",
        "exceptions telemetry apps models",
        "guards registry on budget files",
        "journal work_files",
        "gate work_git work_notes",
        "state agent",
        "checklists memory sessions",
        "llm",
        "frameworks",
        "connections",
        "graphs openai",
        "run",
        "async_run gate_run mail_accounts reminders",
        "tools",
        "heartbeats",
        "prompt_agents",
        "testing library",
    ],
    "agents/llm": [
        "context providers tools",
        "costs delegates outputs strangers",
        "opening",
        "door turn",
        "requests",
        "call",
    ],
    "agents/frameworks": [
        "body clients costs failures tools",
        "requests",
    ],
    "agents/graphs": [
        "extra values refusals definition messages questions",
        "costs executions saver",
        "requests",
        "chat_model call",
    ],
    "agents/openai": [
        "sdk",
        "costs lanes messages",
        "refusals",
        "requests",
        "call",
    ],
    "agents/llm/door": [
        "danger main_thread shown_arguments trusted_texts",
        "approvals leaves tool_steps",
        "approved_output rules",
        "external",
        "door",
    ],
    "runs": [
        "states exceptions failpoints ports users",
        "sign",
        "db",
        "network",
        "models keys",
        "enqueue",
        "transitions outbox notifications",
        "connections waits processes incidents signs",
        "queues",
        "claim",
        "budgets",
        "calls",
        "actions worker",
        "attempt",
        "durable retention",
        "body",
        "executor chores",
        "shadow tasks api",
        "management apps",
    ],
    "triggers": [
        "exceptions models dispatch_lock emit",
        "accept django_tasks events",
        "matching",
        "outbound reports switches",
        "dispatch",
        "replays",
        "sources",
        "schedules retention tasks",
        "beat declarations overnight upcoming",
        "prompt_agents",
        "page_files",
        "api transfer",
        "agents management apps wiring",
    ],
    "triggers/matching": [
        "expressions flow_control",
        "groups",
        "index payload trigger_policy",
        "backfill_terms matches recent",
        "field_samples pending",
        "match",
        "lanes trial",
        "slow_lane",
    ],
    "triggers/matching/expressions": [
        "message_patterns tokens",
        "clauses conditions faults",
        "cel",
        "evaluator_process",
        "evaluator",
    ],
    "triggers/switches": [
        "switch",
        "signs switches timer",
        "backlog rows sight",
        "arm fire note",
    ],
    "triggers/outbound": [
        "body enter match redeliver schedule secrets",
        "edit signs test_event",
        "deliver",
        "postman",
    ],
    "triggers/dispatch": [
        "failing_triggers follow_up late gates pace promise rates run_failures spans waiting_runs windows",
        "admission listeners offers order_of_keys",
        "decisions hold rules",
        "begin leadership overtaking replay_pieces shadow unexplained",
        "batch",
        "close_windows parts",
        "failures shard",
        "looks shards",
        "signs steps",
        "loop",
    ],
    "triggers/replays": [
        "control preview progress replay signs",
        "start",
    ],
    "triggers/sources/webhooks": [
        "kept limits proof",
        "published_keys scheme",
        "identity_token naming receive signs",
        "object_changes",
        "endpoint schemes",
        "acts",
        "door",
        "refusals",
        "test_event views",
    ],
    "config/console": [
        "icons navigation theme parts",
        "lists",
        "access dress",
        "connections runs sources",
        "incidents events notifications",
        "operations",
        "schedules",
        "triggers",
        "agents",
        "prompt_agents",
        "home search",
    ],
}


# What is larger than a reader likes (a file of more than 400 lines, a class of more than 15 methods, a function of more than 60
# lines), and why it is one thing. The list is to get shorter.
PAGE = "Django's admin finds the columns, buttons and actions of a page as methods of one class"
STORE = "the protocol between the engine of journals and what keeps them; most methods are one line"
PLACE = "connection and place could be cut as those of Kafka are"
LARGE = {
    "agents/agent.py agent": "the decorator of authors: most lines are its parameters and their description",
    "agents/graphs/saver.py JournalSaver": "the protocol of LangGraph's checkpointers, plain and awaitable",
    "agents/journal/steps.py Steps": "one step, from its beginning to each of its ends",
    "agents/journal/store.py Store": STORE,
    "agents/llm/requests/durability.py Durability": "the extension point of pydantic-ai: one method for each of its hooks",
    "agents/run.py": "what a body may do, with its description",
    "agents/run.py AgentRun": "what a body may do: one method each",
    "agents/testing.py": "what tests of authors use",
    "agents/testing.py run_agent": "what tests of authors use: most lines are its parameters and their description",
    "config/console/events/page.py": PAGE,
    "config/console/events/page.py EventPanel": PAGE,
    "config/console/parts/panel.py Panel": "the base of each page: its list, its details and what an address may ask of them",
    "config/console/prompt_agents/page.py": PAGE,
    "config/console/prompt_agents/page.py PromptAgentPanel": PAGE,
    "config/console/runs/approvals.py ApprovalPanel": PAGE,
    "config/console/runs/list.py RunPanel": PAGE,
    "config/console/schedules/list.py SchedulePanel": PAGE,
    "config/console/sources/page.py": PAGE,
    "config/console/sources/page.py SourcePanel": PAGE,
    "config/console/navigation.py _groups": "the sidebar: one entry a line",
    "config/env.py Env": "one method for each type of a setting",
    "config/health/metrics.py collect": "a list of metrics, one after the other",
    "config/stack/embedded/server.py Server": "one child process, from its start to its end",
    "runs/durable/store.py DatabaseStore": STORE,
    "runs/durable/transcript.py": "a conversation as it is read from a journal, part by part; its costs could stand apart",
    "runs/shadow/store.py ShadowStore": STORE,
    "runs/worker/parent.py Watch": "one loop; its methods are the steps of a look",
    "triggers/dispatch/failures.py": "what becomes of work that fails; the names of errors could stand apart",
    "triggers/schedules/definition.py Definition": "the fields of a schedule as properties",
    "triggers/sources/brokers/nats.py NatsReader": PLACE,
    "triggers/sources/brokers/redis_streams.py RedisReader": PLACE,
    "triggers/sources/process/reader_thread.py ReaderThread": "one thread, and the four methods by which its process steers it",
    "triggers/sources/process/loop.py Sources": "one loop; its methods are the steps of a look",
}


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse((ROOT / file).read_text(), str(file))))


def is_for_types_alone(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def module_of(file: Path) -> str:
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


def entry_of(file: Path, room: str) -> str:
    return file.relative_to(room).parts[0].removesuffix(".py")


def files_of(room: str) -> list[Path]:
    return [file for file in FILES if file.is_relative_to(room) and file != Path(room, "__init__.py")]


def entries_imported(file: Path, room: str) -> set[str]:
    front = f"{room.replace('/', '.')}."
    found = {name.removeprefix(front).split(".")[0] for name in imports_of(file) if name.startswith(front)}
    return found & set(" ".join(FLOORS[room]).split())


@cache
def imports_of(file: Path) -> frozenset[str]:
    """What the file imports anywhere in it, each with the full name of its module, but for what only the types need."""
    for_types = {id(child) for node in nodes_of(file) if is_for_types_alone(node) for child in ast.walk(node)}
    return frozenset(
        name for node in nodes_of(file) if id(node) not in for_types for name in names_imported(file, node)
    )


def names_imported(file: Path, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = file.parts[: len(file.parts) - node.level] if node.level else ()
        module = ".".join([*package, *([node.module] if node.module else [])])
        yield from (f"{module}.{alias.name}" for alias in node.names)


@cache
def modules() -> dict[str, Path]:
    return {module_of(file): file for file in FILES}


@cache
def modules_imported(file: Path) -> set[str]:
    """The modules of the rooms that the file imports: of each name the longest part that is one."""
    found = set()
    for name in imports_of(file):
        while name and name not in modules():
            name = name.rpartition(".")[0]
        found.add(name)
    return found - {"", module_of(file)}


def folder_entered(file: Path, module: str) -> str:
    """The widest folder that has the module in it and not the file; the module itself where they are neighbours."""
    parts = module.split(".")
    shared = len(os.path.commonprefix([parts, list(file.parent.parts)]))
    return ".".join(parts[: shared + 1])


def front_doors() -> dict[str, tuple[str, str]]:
    """Of each module that is one: the widest folder whose front door it is, and the reason."""
    doors, folder = {}, ""
    for line in FRONT_DOORS.read_text().splitlines():
        module, _, reason = line.partition("  # ")
        if line.startswith("["):
            folder = line.strip("[]")
        elif line and not line.startswith("#"):
            doors[module] = folder, reason
    return doors


def write_front_doors(doors: Iterable[tuple[str, str]]) -> None:
    """Keep the lines at the top, and the reasons."""
    text, reasons = FRONT_DOORS.read_text().partition("\n\n")[0], front_doors()
    under: dict[str, list[str]] = defaultdict(list)
    for folder, module in sorted(doors):
        reason = reasons.get(module, ("", ""))[1]
        under[folder].append(f"{module}  # {reason}" if reason else module)
    FRONT_DOORS.write_text("".join([text, *("\n\n" + "\n".join([f"[{f}]", *under[f]]) for f in under), "\n"]))


def is_large(node: ast.AST) -> bool:
    if isinstance(node, ast.ClassDef):
        return sum(isinstance(child, FUNCTIONS) for child in node.body) > 15
    return isinstance(node, FUNCTIONS) and (node.end_lineno or 0) - node.lineno >= 60


def large_things() -> Iterator[str]:
    for file in FILES:
        if len((ROOT / file).read_text().splitlines()) > 400:
            yield str(file)
        yield from (f"{file} {node.name}" for node in nodes_of(file) if is_large(node))  # type: ignore[attr-defined]


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


def test_imports_go_one_way() -> None:
    assert not [
        f"{file} imports {name}"
        for file in FILES
        for name in imports_of(file)
        if name.split(".")[0] in ROOMS[: ROOMS.index(file.parts[0])]
    ]


@pytest.mark.parametrize("room", FLOORS)
def test_each_floor_imports_only_from_the_floors_below(room: str) -> None:
    floor_of = {entry: number for number, floor in enumerate(FLOORS[room]) for entry in floor.split()}

    upward = [
        f"{file} imports {room}/{other}"
        for file in files_of(room)
        for other in entries_imported(file, room)
        if other != entry_of(file, room) and floor_of[other] >= floor_of[entry_of(file, room)]
    ]

    assert not upward


@pytest.mark.parametrize("room", FLOORS)
def test_every_entry_of_a_room_has_a_floor(room: str) -> None:
    assert {entry_of(file, room) for file in files_of(room)} == set(" ".join(FLOORS[room]).split())


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_no_entries_of_a_folder_import_each_other_in_a_circle(folder: Path) -> None:
    front = f"{'.'.join(folder.parts)}."
    files = [file for file in [*FILES, *BENCH] if file.is_relative_to(folder) and file != folder / "__init__.py"]
    graph: dict[str, set[str]] = {file.relative_to(folder).parts[0].removesuffix(".py"): set() for file in files}
    for file in files:
        entry = file.relative_to(folder).parts[0].removesuffix(".py")
        imported = {name.removeprefix(front).split(".")[0] for name in imports_of(file) if name.startswith(front)}
        graph[entry] |= (imported & graph.keys()) - {entry}

    TopologicalSorter(graph).prepare()  # CycleError names the entries


def test_no_module_belongs_to_an_import_cycle() -> None:
    graph = {module: modules_imported(file) for module, file in modules().items()}

    TopologicalSorter(graph).prepare()  # CycleError names the modules


def test_code_outside_of_a_folder_imports_its_front_doors_alone() -> None:
    entered = {
        (file, module): folder_entered(file, module)
        for file in FILES
        for module in modules_imported(file)
        if folder_entered(file, module) != module
    }
    widest: dict[str, str] = {}
    for (_, module), folder in entered.items():
        widest[module] = min(folder, widest.get(module, folder), key=len)
    if os.environ.get("WRITE"):
        write_front_doors((folder, module) for module, folder in widest.items())
    doors = front_doors()

    beside = [
        f"{file} imports {module}, which is no front door of {folder}: import one that tests/front_doors.txt lists, "
        "or list this one there with a reason"
        for (file, module), folder in entered.items()
        if module not in doors or len(doors[module][0]) > len(folder)
    ]
    unused = [
        f"{module}: nothing outside of {folder} imports it: delete its line in tests/front_doors.txt, "
        "or move it below a narrower folder"
        for module, (folder, _) in doors.items()
        if widest.get(module) != folder
    ]

    assert not beside + unused, "\n".join(beside + unused)


def test_no_room_of_the_project_imports_its_tests() -> None:
    assert not [str(file) for file in FILES if any(name.split(".")[0] == "tests" for name in imports_of(file))]


def test_modules_that_an_agent_author_imports_need_neither_settings_nor_a_database() -> None:
    bare = {name: value for name, value in os.environ.items() if name not in ("DJANGO_SETTINGS_MODULE", "DATABASE_URL")}

    done = subprocess.run(
        [sys.executable, "-c", LEAN], cwd=ROOT, env=bare, capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 0, done.stderr


def test_exactly_the_large_files_classes_and_functions_are_listed_with_a_reason() -> None:
    found = set(large_things())
    new, gone = sorted(found - LARGE.keys()), sorted(LARGE.keys() - found)

    assert not new, f"cut these, or list them in LARGE with the reason: {new}"
    assert not gone, f"these are no longer large: delete their lines in LARGE: {gone}"


def test_every_file_is_named_after_what_it_does() -> None:
    assert not [str(file) for file in FILES if VAGUE & {file.stem, *file.parts[:-1]}]


@pytest.mark.parametrize(
    ("model", "table", "writers"),
    [
        ("Event", "triggers_event", {"triggers/accept.py"}),
        ("Run", "runs_run", {"runs/enqueue.py"}),
        ("AttemptRow", "runs_attemptrow", {"runs/transitions/leave.py"}),
        ("ProcessedEvent", "runs_processedevent", {"runs/transitions/leave.py"}),
        ("AuditEntry", "runs_auditentry", {"runs/models/audit.py"}),
    ],
)
def test_only_the_listed_files_insert_rows_of_a_shared_table(model: str, table: str, writers: set[str]) -> None:
    # An agent's view of an event has the same name as the row.
    rows = [file for file in FILES if "agents.Event" not in imports_of(file) and file.parts[0] != "agents"]

    found = {str(file) for file in rows if writes(file, model) or inserts_into(file, table)}

    assert found == writers


# They make HTML of addresses, times, forms and styles, which are not stored texts.
MAKE_OTHER_HTML = {
    "schedules/policy_fields", "notifications/words", "sources/explained", "sources/form", "sources/setup", "parts/html", "parts/links",
    "parts/moments", "runs/waterfall", "triggers/expression_field",
}  # fmt: skip


def test_stored_texts_enter_the_html_of_the_console_without_secrets() -> None:
    of_django = {
        str(file.relative_to("config/console").with_suffix(""))
        for file in FILES
        if file.is_relative_to("config/console") and "from django.utils.html import" in (ROOT / file).read_text()
    }

    assert of_django <= MAKE_OTHER_HTML
