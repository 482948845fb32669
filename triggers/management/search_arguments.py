"""A search of events as arguments of commands."""

from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from runs.management.arguments import since as since_when
from triggers.events.search import FieldIs, Search
from triggers.exceptions import RuleError


def add_search_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--source", default="", metavar="SLUG", help="events of this source")
    parser.add_argument("--type", default="", metavar="TYPE", help="events of this type; a pattern such as 'order.*'")
    parser.add_argument("--subject", default="", metavar="TEXT", help="events with this subject")
    parser.add_argument(
        "--field", action="append", default=[], metavar="PATH=VALUE",
        help="events whose data has this value, e.g. customer.id=42 or 'items[].sku=a-1'; repeat it for several",
    )  # fmt: skip
    parser.add_argument(
        "--since", type=since_when, metavar="WHEN", help="events received since then, such as 2h or 2026-05-01T08:00Z"
    )
    parser.add_argument("--until", type=since_when, metavar="WHEN", help="events received before then")


def search_of(
    *, source: str, type: str, subject: str, field: list[str], start: datetime | None, until: datetime | None, **_: Any
) -> Search:
    try:
        fields = tuple(FieldIs.parse(text) for text in field)
        return Search(source=source, type=type, subject=subject, fields=fields, start=start, end=until)
    except RuleError as error:
        raise CommandError(str(error)) from None
