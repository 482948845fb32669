from datetime import timedelta
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agents.kernel.durations import parse_duration


class SecondsField(serializers.FloatField):
    """A duration of an answer, in seconds."""

    def to_representation(self, value: timedelta) -> float:  # type: ignore[override]
        return value.total_seconds()


@extend_schema_field({"oneOf": [{"type": "number"}, {"type": "string"}], "nullable": True})
class IntervalField(serializers.Field[timedelta | None, Any, float | None, Any]):
    """Seconds, or a text such as "1h"."""

    default_error_messages = {"invalid": "{why}"}

    def to_internal_value(self, data: Any) -> timedelta:
        if isinstance(data, bool) or not isinstance(data, (int, float, str)):
            self.fail("invalid", why='Use seconds, or a text such as "1h".')
        try:
            return parse_duration(data)
        except ValueError as error:
            self.fail("invalid", why=str(error))

    def to_representation(self, value: timedelta | None) -> float | None:
        return value.total_seconds() if value is not None else None
