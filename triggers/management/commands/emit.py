from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db import transaction
from uuid_utils.compat import uuid7

from agents.kernel.event_names import too_long
from runs.management.arguments import json_argument
from runs.management.command import BaseCommand
from runs.management.operator import operator
from runs.models.audit import record_about
from triggers.accept import Incoming, ReservedType, accept, builtin_source


class Command(BaseCommand):
    help = "Record an event; prints its id, or the id of the first one if it is a duplicate."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("type", metavar="TYPE", help="such as invoice.paid")
        parser.add_argument("--data", type=json_argument, metavar="JSON", help="data of the event")
        parser.add_argument("--source", default="", help="source of the event, a URI reference (default: cli:<you>)")
        parser.add_argument("--subject", default="", help="subject of the event")
        parser.add_argument(
            "--id", default="", help="id at its source: an event with a known id is a duplicate (default: a new id)"
        )

    def handle(self, *, type: str, data: Any, source: str, subject: str, id: str, **options: Any) -> None:
        if long := too_long(type=type, subject=subject):
            raise CommandError(long)
        event = Incoming(
            source_id=builtin_source("cli"),
            ce_source=source or operator(),
            ce_id=id or str(uuid7()),
            type=type,
            subject=subject,
            data=data,
        )
        try:
            with transaction.atomic():
                [accepted] = accept([event])
                if not accepted.duplicate:
                    record_about(operator(), "emit", "event", str(accepted.event_id), type=type)
        except ReservedType as error:
            raise CommandError(str(error)) from None
        if accepted.duplicate:
            self.stderr.write("duplicate: nothing was recorded")
        document = {"event": accepted.event_id, "duplicate": accepted.duplicate}
        self.answer(document, str(accepted.event_id))
