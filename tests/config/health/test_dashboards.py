"""The board and the alert rules of deploy/ name metrics and labels that there are."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.core import HistogramMetricFamily

from config.health.metrics import DatabaseCollector
from config.health.totals import totals

FOLDER = Path(__file__).parents[3] / "deploy" / "prometheus"
NAME = re.compile(r"\bwakeful_\w+")
MATCHED = re.compile(r"(wakeful_\w+?)(?:_bucket)?\{(\w+)=")


def expressions() -> Iterator[str]:
    for panel in json.loads((FOLDER / "grafana.json").read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


@pytest.mark.django_db
def test_every_metric_that_they_name_is_in_a_scrape() -> None:
    families = list(DatabaseCollector().collect())
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
    exposed = {f"{family.name}{suffix}" for family in families for suffix in suffixes[family.type]}

    named = {name for expression in expressions() for name in NAME.findall(expression)}

    assert len(named) > 10
    assert named - exposed == set()


@pytest.mark.django_db
def test_every_label_that_they_select_by_is_one_of_its_metric() -> None:
    labels = {family.name: set(family._labelnames) for family in DatabaseCollector().collect()}  # type: ignore[attr-defined]

    for expression in expressions():
        for name, label in MATCHED.findall(expression):
            assert label in labels[name.removesuffix("_total")], (name, label)


@pytest.mark.django_db
def test_every_counter_and_histogram_is_on_the_board_or_in_the_docs() -> None:
    docs = (FOLDER.parents[1] / "docs" / "observe.md").read_text()

    for family in totals():
        suffix = "" if isinstance(family, HistogramMetricFamily) else "_total"
        assert f"`{family.name}{suffix}{{" in docs
