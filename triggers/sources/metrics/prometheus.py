import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from triggers.sources.kind import register
from triggers.sources.metrics.json_number import MOST_BYTES, read
from triggers.sources.metrics.metric import Metric, MetricReader, MetricSettings, as_number, now
from triggers.sources.metrics.samples import Sample, named
from triggers.sources.polling.conditional_get import AddressSettings, Asking
from triggers.sources.runner import Assignment, Reader, SourceError
from triggers.sources.settings import InvalidSettings, setting
from triggers.sources.webhooks.naming import found_at


@dataclass(frozen=True, kw_only=True)
class PrometheusSettings(AddressSettings, MetricSettings):
    """The server, and the query."""

    query: str = setting("", "Query", 'In PromQL, such as sum by (job) (rate(http_requests_total{code=~"5.."}[5m])).')

    def __post_init__(self) -> None:
        if not self.query.strip():
            raise InvalidSettings({"query": "must not be empty"})
        super().__post_init__()


@register
class Prometheus(Metric[PrometheusSettings]):
    name = "prometheus"
    label = "Prometheus query"
    help_text = "Evaluates a PromQL query at a Prometheus server, or one with its API. Each set of labels is a series."
    settings_class = PrometheusSettings
    in_sight = ("url", "query", "every")
    secret_label = "Token"  # noqa: S105  (a label)
    setup = (
        "Enter the address of the server, such as https://prometheus.example.org, without /api/v1.",
        "Write a query that answers with one number, or with few: each set of labels becomes a series.",
        "When some samples are there, try detectors on them and arm one.",
    )
    docs_url = "https://prometheus.io/docs/prometheus/latest/querying/api/"

    def connect(self, assignment: Assignment[PrometheusSettings]) -> Reader:
        return PrometheusReader(assignment, target=f"{assignment.settings.url} {assignment.settings.query}")


class PrometheusReader(MetricReader):
    def samples(self) -> Sequence[Sample]:
        settings: PrometheusSettings = self.settings
        asking = Asking(settings, self.assignment.secret, most_bytes=MOST_BYTES, accept="application/json")
        url = f"{settings.url.rstrip('/')}/api/v1/query?{urlencode({'query': settings.query})}"
        data = read(asking.expect(url).body)
        result = found_at(data, "data.result")
        if found_at(data, "data.resultType") == "scalar" and isinstance(result, list):
            result = [{"metric": {}, "value": result}]
        if found_at(data, "data.resultType") == "matrix" or not isinstance(result, list):
            raise SourceError("The answer is no vector of numbers.", remedy="Write a query without a range at its end.")
        return list(_samples(result))


def _samples(result: Sequence[Any]) -> Sequence[Sample]:
    found = [(found_at(one, "metric"), as_number(found_at(one, "value.1"))) for one in result]
    # NaN, such as of a division by zero, is no sample.
    return [Sample(series=series_of(labels), at=now(), value=value) for labels, value in found if value is not None]


def series_of(labels: Any) -> str:
    """The labels as PromQL writes them, without the name of the metric."""
    if not isinstance(labels, Mapping):
        return ""
    shown = [
        f"{name}={json.dumps(str(value), ensure_ascii=False)}"
        for name, value in sorted(labels.items())
        if name != "__name__"
    ]
    return named(",".join(shown))
