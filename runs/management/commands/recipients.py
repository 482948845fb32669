import json
import time
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Callable, Mapping
from datetime import time as clock
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from rest_framework.utils.encoders import JSONEncoder

from agents.kernel.durations import parse_duration
from runs.api.recipients import RecipientGroupSerializer, RecipientSerializer
from runs.exceptions import IllegalState
from runs.management.command import BaseCommand
from runs.management.operator import operator
from runs.models import Delivery, Notification, Recipient, RecipientGroup
from runs.notifications.edit import (
    change_group,
    change_recipient,
    create_group,
    create_recipient,
    remove_group,
    remove_recipient,
    send_test,
    silence_for,
)

COLUMNS = "{:<24}  {:<40}  {:<9}  {}"
LOOK_EVERY = 0.2  # seconds
OPEN = (Delivery.Status.PENDING, Delivery.Status.SENDING, Delivery.Status.HELD)


class Command(BaseCommand):
    help = "List the recipients of notifications; add, change, silence, test and remove them, and groups of them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", dest="as_json", help="print recipients and groups as JSON")
        commands = parser.add_subparsers(dest="command", metavar="COMMAND")
        commands.add_parser("list", help="every recipient and group (the default)")
        adding = _named(commands, "add", "add a recipient")
        adding.add_argument("address", help="mailto:ops@example.com, https://host/hook#whsec_…, inbox:ada, …")
        changing = _named(commands, "change", "change the rules that are given")
        changing.add_argument("--address")
        changing.add_argument("--name", dest="new_name", help="a new name")
        changing.add_argument("--active", action=BooleanOptionalAction, help="an inactive one gets nothing")
        for command in (adding, changing):
            _rules(command)
        silencing = _named(commands, "silence", "send it nothing for a time")
        silencing.add_argument("length", type=_duration, help="such as 1h, 1d or 7d")
        _named(commands, "unsilence", "end its silence")
        testing = _named(commands, "test", "send it a test and report whether it arrived")
        testing.add_argument("--wait", type=float, default=30, metavar="SECONDS", help="for the outcome; default: 30")
        _named(commands, "remove", "remove it; what was sent to it stays")
        grouping = _named(commands, "group", "create a group, or replace its members")
        grouping.add_argument("members", nargs="*", metavar="RECIPIENT")
        _named(commands, "ungroup", "remove a group; its members stay")

    def handle(self, *, command: str | None, as_json: bool, **options: Any) -> None:
        if command in (None, "list"):
            self._list(as_json)
            return
        try:
            self._act(command, options["name"], options)
        except ValidationError as fault:
            said = [f"{field}: {text}" for field, texts in fault.message_dict.items() for text in texts]
            raise CommandError("\n".join(said)) from None
        except IllegalState as refusal:
            raise CommandError(str(refusal)) from None

    def _act(self, command: str | None, name: str, options: Mapping[str, Any]) -> None:
        by = operator()
        match command:
            case "add":
                create_recipient(name=name, address=options["address"], by=by, **_given(options))
                self.stdout.write(f"{name} is added.")
            case "change":
                change_recipient(_recipient(name).pk, by=by, address=options["address"], **_given(options))
                self.stdout.write(f"{name} is changed.")
            case "silence":
                until = silence_for(_recipient(name).pk, options["length"], by=by).silenced_until
                self.stdout.write(f"{name} is silenced until {until:%Y-%m-%d %H:%M} UTC.")
            case "unsilence":
                silence_for(_recipient(name).pk, None, by=by)
                self.stdout.write(f"{name} is no longer silenced.")
            case "test":
                self._tell(send_test(_recipient(name).pk, by=by), name, options["wait"])
            case "remove":
                remove_recipient(_recipient(name).pk, by=by)
                self.stdout.write(f"{name} is removed.")
            case "group":
                members = [_recipient(member) for member in options["members"]]
                if group := RecipientGroup.objects.filter(name=name).first():
                    change_group(group.pk, members=members, by=by)
                else:
                    create_group(name, members, by=by)
                self.stdout.write(f"{name} has {len(members)} members.")
            case "ungroup":
                remove_group(_one(RecipientGroup.objects, name, "group").pk, by=by)
                self.stdout.write(f"{name} is removed.")

    def _list(self, as_json: bool) -> None:
        recipients = Recipient.objects.select_related("second")
        groups = RecipientGroup.objects.prefetch_related("members")
        if as_json:
            content = {
                "recipients": RecipientSerializer(recipients, many=True).data,
                "groups": RecipientGroupSerializer(groups, many=True).data,
            }
            self.stdout.write(json.dumps(content, cls=JSONEncoder, indent=2))
            return
        self.stdout.write(COLUMNS.format("recipient", "address", "state", "gets"))
        for one in recipients:
            state = "active" if one.active else "inactive"
            gets = "all" if one.gets_all else "what names it"
            self.stdout.write(COLUMNS.format(one.name, one.address, state, gets))
        for group in groups:
            members = ", ".join(member.name for member in group.members.all())
            self.stdout.write(COLUMNS.format(group.name, f"group of {members or 'no one'}", "", ""))

    def _tell(self, delivery: Delivery, name: str, wait: float) -> None:
        give_up_at = time.monotonic() + wait
        while delivery.status in OPEN and time.monotonic() < give_up_at:
            time.sleep(LOOK_EVERY)
            delivery.refresh_from_db()
        if delivery.status != Delivery.Status.SENT:
            raise CommandError(f"The test is {delivery.status}: {delivery.error or delivery.reason}")
        self.stdout.write(f"The test has arrived at {name}.")


def _named(commands: Any, command: str, said: str) -> ArgumentParser:
    parser: ArgumentParser = commands.add_parser(command, help=said)
    parser.add_argument("name", metavar="NAME")
    return parser


def _rules(parser: ArgumentParser) -> None:
    parser.add_argument("--gets-all", action=BooleanOptionalAction, help="it gets notifications that name no recipient")
    parser.add_argument("--zone", help="time zone of its hours, such as Europe/Vienna")
    parser.add_argument("--quiet", type=_quiet, metavar="HOURS", help="quiet hours, such as 22:00-07:00, or none")
    parser.add_argument("--spacing", type=_duration, help="least time between two messages, such as 30m")
    parser.add_argument("--digest-hour", type=_or_none(int), metavar="HOUR", help="0 to 23, or none")
    parser.add_argument("--least-urgency", choices=Notification.Urgency.values)
    parser.add_argument("--repeat-after", type=_duration, help="time after which the same text is sent again")
    parser.add_argument("--second", type=_or_none(str), metavar="RECIPIENT", help="second route, or none")
    parser.add_argument("--second-after", type=_duration, help="time after which the second route is taken")


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The rules that the command line names."""
    plain = ("gets_all", "zone", "spacing", "digest_hour", "least_urgency", "repeat_after", "second_after", "active")
    rules = {name: options[name] for name in plain if options.get(name) is not None}
    if new_name := options.get("new_name"):
        rules["name"] = new_name
    if options["quiet"] is not None:
        rules["quiet_from"], rules["quiet_until"] = options["quiet"]
    if options["second"] is not None:
        rules["second"] = _recipient(options["second"]) if options["second"] != NONE else None
    if rules.get("digest_hour") == NONE:
        rules["digest_hour"] = None
    return rules


NONE = "none"


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def either(text: str) -> Any:
        return NONE if text == NONE else read(text)

    either.__name__ = read.__name__  # argparse shows this name for a wrong value
    return either


def _duration(text: str) -> Any:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _quiet(text: str) -> tuple[clock | None, clock | None]:
    if text == NONE:
        return None, None
    start, _, until = text.partition("-")
    try:
        return clock.fromisoformat(start), clock.fromisoformat(until)
    except ValueError:
        raise ArgumentTypeError("write hours such as 22:00-07:00, or none") from None


def _recipient(name: str) -> Recipient:
    recipient: Recipient = _one(Recipient.objects, name, "recipient")
    return recipient


def _one(rows: Any, name: str, noun: str) -> Any:
    found = rows.filter(name=name).first()
    if found is None:
        raise CommandError(f"There is no {noun} {name!r}. manage.py recipients lists them.")
    return found
