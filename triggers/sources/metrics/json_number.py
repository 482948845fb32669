from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runs.api.strict_json import Unreadable, parse_json
from triggers.sources.kind import register
from triggers.sources.metrics.metric import Metric, MetricReader, MetricSettings, as_number, is_none, now
from triggers.sources.metrics.samples import Sample, named
from triggers.sources.polling.conditional_get import AddressSettings, Asking
from triggers.sources.runner import Assignment, Reader, SourceError
from triggers.sources.settings import json_path, setting
from triggers.sources.webhooks.naming import found_at, value_at

MOST_BYTES = 2 * 2**20


@dataclass(frozen=True, kw_only=True)
class JsonNumberSettings(AddressSettings, MetricSettings):
    """Where the number is in the answer."""

    value_path: str = setting(
        "",
        "Number in the answer",
        "Path of the number, such as data.count. Empty: the answer is the number.",
        check=json_path,
    )
    items_path: str = setting(
        "", "Items in the answer", "For several series: path of a list, with a number in each item.", check=json_path
    )
    name_path: str = setting(
        "name", "Series in an item", "Path of the series' name in an item of the list.", check=json_path
    )


@register
class JsonNumber(Metric[JsonNumberSettings]):
    name = "json_number"
    label = "Number in JSON"
    help_text = "Polls a number, or a list with a number in each item, in JSON over HTTP."
    settings_class = JsonNumberSettings
    in_sight = ("url", "value_path", "every")
    secret_label = "Token"  # noqa: S105  (a label)
    setup = (
        "Enter the address that answers with JSON, and the path of the number in the answer.",
        "If the server needs a token, enter it as the secret and name the header that carries it.",
        "When some samples are there, try detectors on them and arm one.",
    )

    def connect(self, assignment: Assignment[JsonNumberSettings]) -> Reader:
        return JsonNumberReader(assignment, target=assignment.settings.url)


class JsonNumberReader(MetricReader):
    def samples(self) -> Sequence[Sample]:
        settings: JsonNumberSettings = self.settings
        asking = Asking(settings, self.assignment.secret, most_bytes=MOST_BYTES, accept="application/json")
        data = read(asking.expect(settings.url).body)
        if not settings.items_path:
            return [Sample(at=now(), value=_number(data, settings.value_path))]
        items = found_at(data, settings.items_path)
        if not isinstance(items, list):
            raise SourceError(
                f"The answer has no list at {settings.items_path}.", remedy="Enter the path of the items in the answer."
            )
        if items and all(is_none(found_at(item, settings.value_path)) for item in items):
            raise SourceError("No item has a number.", remedy="Enter the path of the number in an item.")
        return [
            Sample(
                series=named(value_at(item, settings.name_path) or ""),
                at=now(),
                value=_number(item, settings.value_path),
            )
            for item in items
            if not is_none(found_at(item, settings.value_path))
        ]


def read(body: bytes) -> Any:
    try:
        return parse_json(body)
    except Unreadable as reason:
        raise SourceError(f"The answer is not readable: {reason}.", remedy="Check the address.") from None


def _number(data: Any, path: str) -> float:
    found = as_number(found_at(data, path))
    if found is None:
        raise SourceError(
            f"The answer has no number at {path or 'its top'}.", remedy="Enter the path of the number in the answer."
        )
    return found
