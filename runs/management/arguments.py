"""JSON, durations and instants as arguments of commands."""

from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from django.utils import timezone

from agents.kernel.durations import parse_duration
from agents.kernel.instants import parse_instant
from runs.api.strict_json import Unreadable, parse_json, require_storable


def json_argument(text: str) -> Any:
    """A command's argument as JSON, by the same strict rules as webhooks."""
    try:
        value = parse_json(text.encode("utf-8", "surrogateescape"))
        require_storable(value)
    except Unreadable as reason:
        raise ArgumentTypeError(str(reason)) from None
    return value


def duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def instant(text: str) -> datetime:
    """Naive if the text has no offset."""
    try:
        return parse_instant(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def since(text: str, zone: tzinfo = UTC) -> datetime:
    """An instant, by the clock of the zone unless it has an offset, or a duration ago."""
    try:
        return timezone.now() - parse_duration(text)
    except OverflowError:
        raise ArgumentTypeError(f"{text!r} is too long for the calendar") from None
    except ValueError:
        pass
    try:
        at = parse_instant(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{error}; or a duration ago, e.g. 2h or 3d") from None
    try:
        return (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)
    except OverflowError:
        raise ArgumentTypeError(f"{text!r} is beyond the calendar") from None
