"""Fields and resources that several files of the API share."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin

from agents.kernel.instants import FORMS, parse_instant
from agents.kernel.report import ONS, Report
from runs.api.resource import BySlug, Resource
from runs.api.shown import Shown
from triggers.exceptions import Invalid, RuleError
from triggers.schedules.clock import LONGEST_ZONE, refuse_beyond, zone_of

UNESCAPED = re.compile(r" (\d\d:?\d\d)$")  # the plus of an offset, in a URL


class Instant(serializers.CharField):
    """An ISO 8601 time; without an offset it is naive, a local time of a zone."""

    default_error_messages = dict.fromkeys(("invalid", "blank"), f"Not a date and time; use e.g. {FORMS}.")

    def to_internal_value(self, data: Any) -> Any:
        text = UNESCAPED.sub(r"+\1", super().to_internal_value(data))
        try:
            at = parse_instant(text)
            refuse_beyond(at)
        except ValueError as error:
            raise ValidationError(str(error)) from None
        return at


class InstantInUtc(Instant):
    """An ISO 8601 time; without an offset it is one of UTC."""

    def to_internal_value(self, data: Any) -> Any:
        at: datetime = super().to_internal_value(data)
        return at if at.tzinfo else at.replace(tzinfo=UTC)


class Zone(serializers.CharField):
    """The name of a zone."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": LONGEST_ZONE, **kwargs})

    def to_internal_value(self, data: Any) -> Any:
        name = super().to_internal_value(data)
        try:
            zone_of(name)
        except RuleError as error:
            raise ValidationError(str(error)) from None
        return name


class NamesOrTrue(serializers.JSONField):
    """True, or a list of names; `Report` checks which."""


class ReportSerializer(Shown):
    """Where the outcome of a run is reported when it ends."""

    on = serializers.ChoiceField(ONS, default="end", help_text="which ends; a failure is every end that is no success")
    notify = NamesOrTrue(
        required=False, help_text="names of recipients and groups; true: those who get what names no recipient"
    )
    webhooks = serializers.ListField(child=serializers.CharField(), required=False, help_text="names of subscriptions")
    event = serializers.BooleanField(required=False, help_text="record the event run.finished for its listeners")

    def to_internal_value(self, data: Any) -> Any:
        given = {name: value for name, value in data.items() if name != "by"} if isinstance(data, dict) else data
        try:
            return Report.load(given)
        except ValueError as error:
            raise ValidationError(str(error)) from None


class BySlugResource(ListModelMixin, RetrieveModelMixin, Resource):
    """A resource whose objects are found and ordered by their slugs."""

    pagination_class = BySlug
    lookup_field = "slug"
    lookup_value_regex = r"[-\w]+"


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Answer 400 for a RuleError, under the name of its field, or of this one."""
    try:
        yield
    except RuleError as error:
        raise ValidationError({error.field or field: [str(error)]}) from None


@contextmanager
def naming_each() -> Iterator[None]:
    """Answer 400 for Invalid, each problem under the name of its field."""
    try:
        yield
    except Invalid as invalid:
        named: dict[str, list[str]] = {}
        for problem in invalid.problems:
            field, _, text = problem.partition(": ")
            named.setdefault(field, []).append(text or problem)
        raise ValidationError(named) from None
