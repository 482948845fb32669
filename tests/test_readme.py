"""README.md, docs/ and deploy/ name only what is there."""

import re
from pathlib import Path
from uuid import UUID

import pytest
from django.conf import settings
from django.core.management import get_commands
from django.urls import resolve

from agents.tools.toolbox import all_tools
from config.env import Knob
from config.health.totals import COUNTERS, HISTOGRAMS
from runs.actions.watch import WATCHERS
from runs.notifications.channels.channel import channels
from triggers.sources.kind import kinds
from triggers.sources.metrics.detector import detectors

ROOT = Path(__file__).resolve().parent.parent
FOR_OPERATORS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DOCUMENTS = [*FOR_OPERATORS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PUBLISHED = [*FOR_OPERATORS, *sorted(path for path in (ROOT / "deploy").iterdir() if path.is_file())]
NOBODY = UUID(int=0)


def found_in(pattern: str, *paths: Path) -> list[str]:
    """What the pattern finds in these files, or in all documents."""
    return [found for path in paths or DOCUMENTS for found in re.findall(pattern, path.read_text())]


def knobs_table() -> str:
    """The table of settings in docs/settings.md."""
    return "\n".join(["| setting | default | |", "|---|---|---|", *(_row(knob) for knob in settings.KNOBS)])


def _row(knob: Knob) -> str:
    default = knob.default
    return f"| `{knob.name}` | {f'`{default}`' if default else 'empty'} | {knob.meaning} |"


def test_the_two_commands_come_first() -> None:
    [first_block] = found_in(r"(?s)## Run it\n.*?```\n(.*?)```", ROOT / "README.md")

    assert [line.split("#")[0].strip() for line in first_block.splitlines()] == ["make run", "make test"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_commands_that_need_the_settings_of_make_run_come_after_it(document: Path) -> None:
    text = document.read_text()

    if "manage.py makemigrations" in text:
        assert -1 < text.find("make run") < text.find("manage.py makemigrations")


def test_every_make_target_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert set(found_in(r"(?:`|\n)make ([a-z-]+)")) <= set(targets)


OWN_COMMANDS = {name for name, app in get_commands().items() if app in ("config", "triggers", "runs", "agents")}


def pages_of(heading: str) -> list[Path]:
    """The pages that the map of the docs lists under this heading."""
    [section] = found_in(rf"(?s)\n## {heading}\n(.*?)(?:\n## |$)", ROOT / "docs" / "README.md")
    return [ROOT / "docs" / name for name in re.findall(r"\]\(([\w-]+\.md)\)", section)]


# A word is no description: each stands where its pages describe it, and in the form in which they do.
@pytest.mark.parametrize(
    ("what", "names", "pages"),
    [
        (
            "kind of source",
            [kind.label for kind in kinds().values()],
            pages_of("Wake it"),
        ),
        ("channel", list(channels()), [ROOT / "docs" / "notifications.md"]),
        (
            "tool",
            [f"| `{tool.name}` |" for tool in all_tools() if tool.function.__module__.startswith("agents.tools.")],
            [ROOT / "docs" / "tools.md"],
        ),
        ("detector", [f"| {one.label} |" for one in detectors().values()], [ROOT / "docs" / "metrics.md"]),
        ("command", [f"manage.py {name}" for name in sorted(OWN_COMMANDS)], DOCUMENTS),
    ],
)
def test_whatever_there_is_stands_in_the_docs(what: str, names: list[str], pages: list[Path]) -> None:
    text = "\n".join(path.read_text() for path in pages).lower()
    missing = [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name.lower())}(?![\w-])", text)]
    where = ", ".join(path.name for path in pages)

    assert names and not missing, f"this {what} is not described ({where}): {', '.join(missing)}"


# What the picture of the README calls the kinds of a family, or one kind.
WAYS_IN = {
    "webhooks": "webhooks", "brokers": "brokers", "metrics": "metrics", "drift": "drift", "feed": "feeds", "json_list": "JSON lists",
    "imap": "mail", "gmail": "mail", "microsoft_mail": "mail", "directory": "files", "object_store": "buckets",
    "table": "changed rows", "postgresql": "logs of other databases",
    "absence": "absence", "ping": "pings", "calendars": "calendars",
}  # fmt: skip


def test_the_picture_draws_every_way_in() -> None:
    [picture] = found_in(r"(?s)## The path of a wake\n\n```\n(.*?)```", ROOT / "README.md")
    left = [re.split(r"[│─▲]", line)[0] for line in picture.splitlines()]
    drawn = {
        name.strip()
        for name in "".join(f"{',' * bool(line[1:12].strip())} {line[12:].strip()}" for line in left).split(",")
    }

    ways = {WAYS_IN.get(kind.name) or WAYS_IN[type(kind).__module__.split(".")[2]] for kind in kinds().values()}
    assert ways <= drawn
    assert {"CloudEvents", "schedules", "command line", "emit"} <= drawn


def test_every_command_exists() -> None:
    named = set(found_in(r"manage\.py ([a-z_]+)"))

    assert {"up", "doctor", "emit", "fire", "requeue", "replay", "runs", "sync_agents", "dispatcher"} <= named
    assert named <= set(get_commands())


def test_every_test_exists() -> None:
    named = set(found_in(r"tests/[\w/]+\.py(?:::\w+)?"))

    assert len(named) > 20
    for path, _, name in (test.partition("::") for test in named):
        assert f"def {name}(" in (ROOT / path).read_text() if name else (ROOT / path).is_file(), f"{path}::{name}"


def test_every_setting_exists() -> None:
    named = {name for path in PUBLISHED for name in re.findall(r"\bWAKEFUL_[A-Z_]+\b", path.read_text())}

    assert named <= {knob.name for knob in settings.KNOBS}


def test_the_table_of_settings_is_the_one_list() -> None:
    assert knobs_table() in (ROOT / "docs" / "settings.md").read_text(), f"docs/settings.md needs:\n{knobs_table()}"


def test_every_metric_exists() -> None:
    names = set(re.findall(r'"(wakeful_\w+)"', (ROOT / "config" / "health" / "metrics.py").read_text()))
    names |= {f"{counter.name}_total" for counter in COUNTERS} | {histogram.name for histogram in HISTOGRAMS}

    assert set(found_in(r"`(wakeful_[a-z_]+)(?![a-z_<])")) == names


def test_every_endpoint_exists() -> None:
    endpoints = found_in(r"`(?:GET|POST) ([^`? ]+)", ROOT / "docs" / "api.md")

    assert len(endpoints) > 10
    for endpoint in endpoints:
        resolve("/api/v1/" + endpoint.replace("<id>", str(NOBODY)).replace("<slug>", "any").replace("<name>", "any"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_piece_of_python_is_python(document: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
        compile(code, str(document), "exec")


def test_a_worker_has_longer_to_stop_than_its_runs_have_to_finish() -> None:
    unit = (ROOT / "deploy" / "wakeful-worker@.service").read_text()
    [patience] = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)

    assert "\nKillMode=mixed\n" in unit
    assert int(patience) > settings.WAKEFUL_SHUTDOWN_GRACE.total_seconds()


def test_requests_that_wait_for_runs_leave_threads_for_webhooks() -> None:
    assert WATCHERS._initial_value < settings.WAKEFUL_WEB_REQUESTS  # type: ignore[attr-defined]


def test_the_web_unit_may_open_as_many_files_as_it_lets_connections_in() -> None:
    unit = ROOT / "deploy" / "wakeful-web.service"
    [[connections], [files]] = found_in(r"--backpressure (\d+)", unit), found_in(r"LimitNOFILE=(\d+)", unit)

    assert int(files) > int(connections)


def test_every_unit_is_hardened() -> None:
    wanted = {
        "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "PrivateDevices=yes", "ProtectProc=invisible",
        "RestrictNamespaces=yes", "SystemCallFilter=@system-service", "UMask=0077", "CapabilityBoundingSet=", "LimitCORE=0",
    }  # fmt: skip
    units = sorted((ROOT / "deploy").glob("*.service"))

    assert len(units) == 7
    assert {unit.name: wanted.difference(unit.read_text().splitlines()) for unit in units} == {
        unit.name: set() for unit in units
    }


def test_the_environment_to_start_from_names_settings() -> None:
    named = found_in(r"(?m)^([A-Z_]+)=", ROOT / "deploy" / "env.example")

    assert set(named) <= {knob.name for knob in settings.KNOBS} | {"PYTHONPATH"}


def test_the_map_of_the_docs_names_every_page() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}

    assert set(found_in(r"\]\(([\w-]+\.md)\)", ROOT / "docs" / "README.md")) == pages


def test_the_readme_is_a_page_and_the_changelog_is_another() -> None:
    lengths = {name: len((ROOT / name).read_text().splitlines()) for name in ("README.md", "CHANGELOG.md")}

    assert lengths["README.md"] <= 200 and lengths["CHANGELOG.md"] <= 60, lengths


@pytest.mark.parametrize("document", [ROOT / "README.md", ROOT / "docs" / "README.md"], ids=["readme", "map"])
@pytest.mark.parametrize(
    "answer",
    ["sources.md", "notifications.md#a-channel-of-your-own", "how-it-works.md#when-something-dies", "trouble.md"],
)
def test_a_newcomers_questions_are_one_click_away(answer: str, document: Path) -> None:
    assert re.search(rf"\]\((docs/)?{re.escape(answer)}\)", document.read_text())


HEADING = re.compile(r"(?m)^#+ (.+)$")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_link_leads_to_a_heading(document: Path) -> None:
    for target, heading in re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", document.read_text()):
        text = (document.parent / target if target else document).read_text()
        slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(text)}
        assert heading in slugs, f"{target}#{heading}"
