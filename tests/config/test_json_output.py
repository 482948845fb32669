"""Every command that ends: `--json` gives exactly one JSON document, and its exit code is 0, 1 or 2."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class

from config.health.doctor import Finding
from runs.management.json_output import JsonOutput
from runs.states import RunStatus
from tests.support.runs import make_run
from tests.support.triggers import make_trigger
from triggers.models import Event

OWN = sorted(name for name, app in get_commands().items() if app in ("config", "triggers", "runs", "agents"))
PROCESSES = ["caller", "dispatcher", "sources", "up"]
ENDING = [name for name in OWN if name not in PROCESSES]


def command_named(name: str) -> Any:
    return load_command_class(get_commands()[name], name)


def answer(*arguments: Any) -> Any:
    """The one document on standard output."""
    out = StringIO()
    call_command(*map(str, arguments), "--json", stdout=out, stderr=StringIO())
    return json.loads(out.getvalue())


def failure(*arguments: Any) -> Any:
    out = StringIO()
    with pytest.raises((CommandError, SystemExit)):
        call_command(*map(str, arguments), "--json", stdout=out, stderr=StringIO())
    return json.loads(out.getvalue())


def test_only_processes_that_run_until_they_are_stopped_have_no_document() -> None:
    assert [name for name in OWN if command_named(name).is_process] == PROCESSES


@pytest.mark.parametrize("name", ENDING)
def test_a_wrong_command_line_is_one_document_with_exit_code_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_named(name).run_from_argv(["manage.py", name, "--json", "--no-such-option"])

    out, err = capsys.readouterr()
    document = json.loads(out)
    assert ended.value.code == 2
    assert list(document) == ["error"] and document["error"] in err


@pytest.mark.parametrize("name", ["schedules", "slot", "prompt_agent", "import_from", "recipients"])
def test_the_option_may_stand_before_and_behind_an_action(name: str) -> None:
    parser = command_named(name).create_parser("manage.py", name)
    first = {
        "schedules": ["list"], "slot": ["drop", "x"], "prompt_agent": ["list"], "import_from": ["beat", "-"],
        "recipients": ["list"],
    }[name]  # fmt: skip

    assert parser.parse_args([*first, "--json"]).as_json
    assert parser.parse_args(["--json", *first]).as_json
    assert not parser.parse_args(first).as_json


@pytest.mark.django_db
def test_what_was_done_is_the_document() -> None:
    make_trigger()

    emitted = answer("emit", "visitor.came", "--id", "7")
    again = answer("emit", "visitor.came", "--id", "7")
    fired = answer("fire", "greeter")

    assert emitted["event"] == again["event"] and [emitted["duplicate"], again["duplicate"]] == [False, True]
    assert Event.objects.filter(pk__in=[emitted["event"], fired["event"]]).count() == 2
    assert answer("sync_agents")["changes"] is not None
    assert answer("runs") == [] and answer("replays") == []
    assert answer("export_triggers")["format"] == "wakeful triggers"
    assert {knob["name"] for knob in answer("doctor", "--knobs")} >= {"SECRET_KEY"}


@pytest.mark.django_db
def test_a_command_with_text_alone_gives_its_lines() -> None:
    assert answer("pause", "--reason", "x") == {"output": ["All queues are paused."]}
    assert answer("resume") == {"output": ["All queues are resumed."]}


@pytest.mark.django_db
def test_what_failed_is_the_document() -> None:
    assert failure("fire", "nosuch") == {"error": "no such trigger: nosuch"}
    assert "--yes" in failure("erase", "--subject", "x")["error"]
    assert "--output" in failure("export_events")["error"]
    assert "--yes" in failure("uninstall")["error"]


@pytest.mark.django_db
def test_what_was_done_is_the_document_also_where_some_of_it_was_refused() -> None:
    failed = make_run(status=RunStatus.FAILED)

    [done] = failure("requeue", failed.id, "nonsense")

    assert done["id"] == str(failed.id)


def test_doctor_names_each_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Finding("the database answers"), Finding("no worker is alive", fix="start one")]
    monkeypatch.setattr("config.management.commands.doctor.examine", lambda: iter(found))  # the real one takes seconds

    assert failure("doctor") == {
        "wrong": 1,
        "findings": [{"text": "the database answers", "fix": ""}, {"text": "no worker is alive", "fix": "start one"}],
    }


class Broken(JsonOutput):
    requires_system_checks: list[str] = []

    def handle(self, **options: Any) -> None:
        self.stdout.write("begun")
        raise ZeroDivisionError("by zero")


class Interrupted(Broken):
    def handle(self, **options: Any) -> None:
        self.stdout.write("begun")
        raise KeyboardInterrupt


def test_an_error_that_was_not_foreseen_is_a_document_too() -> None:
    out = StringIO()
    with pytest.raises(ZeroDivisionError):
        call_command(Broken(), "--json", stdout=out)

    assert json.loads(out.getvalue()) == {"error": "ZeroDivisionError: by zero", "output": ["begun"]}


def test_a_command_that_a_person_has_interrupted_is_no_document_of_success() -> None:
    out = StringIO()
    with pytest.raises(KeyboardInterrupt):
        call_command(Interrupted(), "--json", stdout=out)

    assert json.loads(out.getvalue()) == {"error": "interrupted", "output": ["begun"]}


def test_without_the_option_nothing_changes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        Broken().run_from_argv(["manage.py", "broken"])

    assert capsys.readouterr().out == "begun\n"
