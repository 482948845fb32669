import json
import sys
import tomllib
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import transaction
from rest_framework.utils.encoders import JSONEncoder

from agents.models import PromptAgent
from agents.prompt_agents.definition import Definition
from runs.exceptions import RunError
from runs.management.arguments import json_argument
from runs.management.command import BaseCommand
from runs.management.operator import operator
from runs.shadow.shadow import TRIAL_LIMIT, Outcome, Shadow
from triggers.exceptions import Invalid, RuleError
from triggers.management.last_resort import ending_with_the_process
from triggers.models import Trigger
from triggers.prompt_agents.as_json import exported, read
from triggers.prompt_agents.edit import (
    create_prompt_agent,
    delete_prompt_agent,
    edit_prompt_agent,
    newest_of,
    restore_prompt_agent,
    set_budget,
    set_checklist,
)
from triggers.prompt_agents.trial import try_prompt_agent
from triggers.prompt_agents.wakes import OnEvents, OnSchedule, When, read_wake
from triggers.schedules.rules.words import read_rule

FILE = "a .toml or .json file, or - for JSON on the standard input (docs/prompt-agents.md)"


class Command(BaseCommand):
    help = "Make, show, edit and try prompt agents: agents without code."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help="make one from a file, or from a sentence and options")
        create.add_argument("name", metavar="NAME")
        create.add_argument("--file", metavar="FILE", help=FILE)
        create.add_argument(
            "--says", metavar="TEXT", default="", help="instructions; may begin with a schedule or a deadline in words"
        )
        create.add_argument("--schedule", metavar="WORDS", default="", help="such as 'every weekday at 08:00'")
        create.add_argument("--tz", default="UTC", help="zone of the schedule")
        create.add_argument(
            "--events", nargs="+", default=[], metavar="TYPE", help="event type globs, such as invoice.*"
        )
        create.add_argument(
            "--source", default="", metavar="SLUG", help="only events of this source, such as a webhook"
        )
        create.add_argument("--tool", action="append", default=[], metavar="NAME", help="repeat for several")
        create.add_argument("--to", action="append", default=[], metavar="RECIPIENT", help="repeat for several")
        create.add_argument("--model", default="")
        create.add_argument(
            "--connection",
            action="append",
            default=[],
            metavar="NAME=CONNECTION",
            type=_pair,
            help="such as mail=gmail",
        )
        create.add_argument(
            "--by-thread", action="store_true", help="each thread of messages is a conversation of its own"
        )
        edit = actions.add_parser("edit", help="change what a file names; the rest stays")
        edit.add_argument("name", metavar="NAME")
        edit.add_argument("file", metavar="FILE", help=FILE)
        actions.add_parser("list", help="those that are not deleted")
        for action, text in {
            "show": "print one as JSON, as `create --file` reads it",
            "delete": "disable its triggers and keep its versions",
            "restore": "undo a deletion; its triggers stay disabled",
        }.items():
            actions.add_parser(action, help=text).add_argument("name", metavar="NAME")
        trial = actions.add_parser("try", help="ask its model now, and show what it would send")
        trial.add_argument("name", metavar="NAME")
        trial.add_argument(
            "--data", metavar="JSON", type=_json, help="as if of an event; - reads it from the standard input"
        )
        for one in actions.choices.values():
            one.add_argument("--by", default="", help="acting user, for the audit log (default: you)")
            one.add_argument("--json", action="store_true", dest="as_json", help="print JSON")

    def handle(self, *, action: str, by: str, as_json: bool, **given: Any) -> None:
        self.by, self.as_json = by or operator(), as_json
        act: dict[str, Callable[..., None]] = {
            "create": self.create, "edit": self.edit, "list": self.list_all, "show": self.show, "try": self.try_out,
            "delete": self.delete, "restore": self.restore,
        }  # fmt: skip
        try:
            act[action](**given)
        except (Invalid, RuleError, RunError, ValueError) as error:
            raise CommandError(str(error)) from None

    def create(self, *, name: str, file: str | None, says: str, schedule: str, tz: str, **given: Any) -> None:
        said = read(_content(file)) if file else read({})
        found, instructions = (OnSchedule(rule=read_rule(schedule, tz)), says) if schedule else read_wake(says, tz)
        when: list[When] = [*said.when, *([found] if found else [])]
        if given["events"] or given["source"]:
            when.append(OnEvents(types=given["events"] or ["*"], source=given["source"]))
        options = {
            "instructions": instructions,
            "tools": given["tool"],
            "notify_to": given["to"],
            "model": given["model"],
            "connections": dict(given["connection"]),
            "by_thread": given["by_thread"],
        }
        definition = Definition.load(
            {**said.over().dump(), **{name: value for name, value in options.items() if value}}
        )
        made = create_prompt_agent(
            name, definition, when=when, checklist=said.checklist or (), budget=said.budget, by=self.by
        )
        wakes = ", ".join(
            Trigger.objects.filter(agent=name, enabled=True).values_list("slug", flat=True).order_by("slug")
        )
        self._say(made, f"created {name}, version {made.newest}; triggers: {wakes or 'none'}")

    def edit(self, *, name: str, file: str, **given: Any) -> None:
        agent, said = _named(name), read(_content(file))
        if said.when:
            raise CommandError("when: cannot be edited here; edit the triggers and schedules of the agent")
        with transaction.atomic():
            edited = edit_prompt_agent(
                agent.pk, said.over(Definition.load(newest_of(agent).definition)), by=self.by, version=agent.newest
            )
            set_budget(name, said.budget, by=self.by)
            if said.checklist is not None:
                set_checklist(name, said.checklist, by=self.by)
        self._say(edited, f"{name} has version {edited.newest}")

    def list_all(self, **given: Any) -> None:
        agents = list(PromptAgent.objects.filter(deleted_at=None).order_by("name"))
        if self.as_json:
            self._print([exported(agent) for agent in agents])
            return
        for agent in agents:
            self.stdout.write(
                f"{agent.name}  version {agent.newest}  {newest_of(agent).definition['instructions'][:80]!r}"
            )

    def show(self, *, name: str, **given: Any) -> None:
        self._print(exported(_named(name)))

    def delete(self, *, name: str, **given: Any) -> None:
        self._say(delete_prompt_agent(_named(name).pk, by=self.by), f"deleted {name}")

    def restore(self, *, name: str, **given: Any) -> None:
        self._say(restore_prompt_agent(_named(name).pk, by=self.by), f"restored {name}; its triggers are disabled")

    def try_out(self, *, name: str, data: Any, **given: Any) -> None:
        with ending_with_the_process(self, TRIAL_LIMIT):
            tried = try_prompt_agent(_named(name), data=data, by=self.by)
        if self.as_json:
            self._print([tried.dump()])
        else:
            self._report(tried)

    def _report(self, tried: Shadow) -> None:
        stop = tried.stop.said if tried.stop else ""
        self.stdout.write(f"{tried.agent}: {tried.outcome} {tried.error or stop}".rstrip())
        for notice in tried.left.notices:
            self.stdout.write(f"  would notify {', '.join(notice.to) or 'everyone'} ({notice.urgency}): {notice.text}")
        for emission in tried.left.emissions:
            self.stdout.write(f"  would emit {emission.type}: {json.dumps(emission.data, ensure_ascii=False)}")
        if tried.outcome == Outcome.SUCCEEDS and not tried.left.notices and not tried.left.emissions:
            self.stdout.write("  it has nothing to report")
        self.stdout.write(json.dumps(tried.result, ensure_ascii=False, indent=2))

    def _say(self, agent: PromptAgent, text: str) -> None:
        if self.as_json:
            self._print(exported(agent))
        else:
            self.stdout.write(text)

    def _print(self, content: Any) -> None:
        self.stdout.write(json.dumps(content, cls=JSONEncoder, ensure_ascii=False, indent=2))


def _named(name: str) -> PromptAgent:
    agent = PromptAgent.objects.filter(name=name).first()
    if agent is None:
        raise CommandError(f"There is no prompt agent {name!r}. `manage.py prompt_agent list` shows them.")
    return agent


def _pair(text: str) -> tuple[str, str]:
    called, is_pair, name = text.partition("=")
    if not is_pair:
        raise ArgumentTypeError(f"{text!r}: write what the tools call it, = and its name, such as mail=gmail")
    return called, name


def _json(text: str) -> Any:
    return json_argument(sys.stdin.read() if text == "-" else text)


def _content(file: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        content = tomllib.loads(text) if file.endswith(".toml") else json.loads(text)
    except (OSError, ValueError) as error:
        raise CommandError(f"{file}: {error}") from None
    if not isinstance(content, dict):
        raise CommandError(f"{file}: must be an object")
    return content
