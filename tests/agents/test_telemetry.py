"""Spans at a real OTLP collector; none where no operator configured them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F
from pydantic_ai import Agent as LlmAgent
from uuid_utils.compat import uuid7

from agents import AgentRun, telemetry
from agents.kernel.redaction import know
from agents.telemetry import Span
from runs.actions.approve import decide
from runs.models import Approval, Attempt, Run, Wait
from runs.transitions.spans import attempt_of
from tests.support.collector import Collector, Told, collecting
from tests.support.durable import Lab, lab
from tests.support.llm import Turns

__all__ = ["lab"]
ROOT = Path(__file__).resolve().parent.parent.parent
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
WITHOUT = """
import django, sys
django.setup()
import agents.llm.call, runs.executor, triggers.dispatch.batch
sys.exit("opentelemetry.sdk" in sys.modules and "the SDK is imported")
"""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as collector:
        for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_BSP_SCHEDULE_DELAY"):
            monkeypatch.setenv(name, "")  # so that it is put back
            monkeypatch.delenv(name)
        yield collector
        telemetry.switch_off()


def switch_on(collector: Collector, *, keeps_content: bool = False) -> None:
    telemetry.switch_on(service="test", endpoint=collector.url, headers="", keeps_content=keeps_content)


def recorded_spans(collector: Collector) -> dict[str, Told]:
    telemetry.flush()
    return {span.name: span for span in collector.spans}


def tell(span: Span, name: str = "it", **about: Any) -> None:
    times = {"began": NOW, "ended": NOW + timedelta(seconds=2)}
    telemetry.record(span, name, **{"parent": None, "attributes": {}, **times, **about})


def test_without_an_endpoint_the_sdk_is_not_imported() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
    )

    assert done.returncode == 0, done.stderr


def test_a_span_has_the_id_of_what_it_stands_for(collector: Collector) -> None:
    switch_on(collector)
    root = uuid7()
    run = Span.of(root, "run", "1")
    tell(Span.of(root, "attempt", "1", 2), "attempt", parent=run)
    tell(run, "run")

    spans = recorded_spans(collector)

    assert spans["run"].trace == UUID(int=root.int).hex
    assert (spans["run"].parent, spans["attempt"].parent) == ("", spans["run"].id)
    assert int(spans["run"].id, 16) == run.id
    assert spans["run"].ended - spans["run"].began == 2_000_000_000


def test_whole_traces_are_sampled_or_left_out(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    switch_on(collector)
    roots = [UUID(int=uuid7().int) for _ in range(100)]
    for root in roots:
        event = Span.of(root, "event", root)
        tell(event, "event")
        with telemetry.within(Span.of(root, "attempt", root)), telemetry.doing("step"):
            pass

    recorded_spans(collector)

    whole = {name: {span.trace for span in collector.spans if span.name == name} for name in ("event", "step")}
    assert whole["event"] == whole["step"]
    assert 0 < len(whole["event"]) < 100


def test_no_secret_leaves_with_a_span(collector: Collector) -> None:
    know("s3cret-Planted-0815")
    switch_on(collector)

    tell(
        Span.of(uuid7(), "run", 1),
        "run s3cret-Planted-0815",
        attributes={"a": "b s3cret-Planted-0815"},
        error="s3cret-Planted-0815",
    )

    [name] = recorded_spans(collector)
    assert name == "run [secret]"
    assert b"s3cret-Planted" not in b"".join(collector.bodies)


@pytest.mark.django_db(transaction=True)
def test_a_replay_records_no_span_again(lab: Lab, collector: Collector) -> None:
    switch_on(collector)
    llm = LlmAgent(Turns([("look", {})], "done").model, name="looker")

    @llm.tool_plain
    def look() -> str:
        return "seen"

    def body(run: AgentRun) -> Any:
        run.step("one", lambda: 1)
        output = run.llm(llm, "look").output
        run.sleep("1h")
        run.step("two", lambda: 2)
        return output

    run = lab.later(lab.run(body))

    recorded_spans(collector)
    spans = collector.of(UUID(int=run.root_id.int).hex)
    names = sorted(span.name for span in spans if not span.name.startswith(("event", "dispatch")))
    assert names == [
        "attempt durable", "attempt durable", "chat scripted", "chat scripted", "execute_tool look", "invoke_agent looker",
        "run durable", "step one", "step two",
    ]  # fmt: skip
    attempts = [format(attempt_of(run.root_id, run.pk, epoch).id, "016x") for epoch in (1, 2)]
    parents = {span.name: span.parent for span in spans}
    assert [parents[name] for name in ("step one", "invoke_agent looker", "step two")] == [
        attempts[0],
        attempts[0],
        attempts[1],
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("keeps_content", [True, False])
def test_content_is_in_the_spans_where_it_is_requested(lab: Lab, collector: Collector, keeps_content: bool) -> None:
    switch_on(collector, keeps_content=keeps_content)

    lab.run(lambda run: run.llm(LlmAgent(Turns("in the garden").model, name="looker"), "Where is Ann?").output)

    recorded_spans(collector)
    everything = b"".join(collector.bodies)
    assert (b"Where is Ann?" in everything, b"in the garden" in everything) == (keeps_content, keeps_content)


@pytest.mark.django_db(transaction=True)
def test_a_failed_step_is_an_error_without_its_message(lab: Lab, collector: Collector) -> None:
    switch_on(collector)

    def fail() -> None:
        raise ValueError("Ann owes 12")

    run = lab.run(lambda run: run.step("count", fail))

    spans = recorded_spans(collector)
    assert run.status == "failed"
    assert [spans[name].is_error for name in ("step count", "attempt durable", "run durable")] == [True, True, True]
    assert spans["step count"].attributes["error.type"] == "ValueError"
    assert b"Ann owes" not in b"".join(collector.bodies)


@pytest.mark.django_db(transaction=True)
def test_a_collector_that_is_away_stops_no_run(lab: Lab, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    collector.url = "http://127.0.0.1:9"
    switch_on(collector)

    assert lab.run(lambda run: run.step("one", lambda: 1)).status == "succeeded"


@pytest.mark.django_db(transaction=True)
def test_an_approval_of_an_hour_stays_in_the_trace(lab: Lab, collector: Collector) -> None:
    switch_on(collector)
    llm = LlmAgent(Turns([("pay", {"cents": 1})], "paid").model, name="payer")

    @llm.tool_plain(requires_approval=True)
    def pay(cents: int) -> str:
        return "paid"

    run = lab.run(lambda run: run.llm(llm, "pay").output)
    hour_later(run)
    decide(Approval.objects.get(wait__run=run).pk, decision="approve", by="ann")
    run = lab.go_on(run)

    recorded_spans(collector)
    assert run.status == "succeeded"
    spans = [span for span in collector.spans if span.name.startswith(("run", "attempt", "chat", "execute_tool"))]
    assert {span.trace for span in spans} == {run.root_id.hex}
    names = sorted(span.name for span in spans)
    assert names == [
        "attempt durable",
        "attempt durable",
        "chat scripted",
        "chat scripted",
        "execute_tool pay",
        "run durable",
    ]
    [whole] = [span for span in spans if span.name == "run durable"]
    assert whole.ended - whole.began > 3600 * 10**9


def hour_later(run: Run) -> None:
    """All that was recorded is an hour older."""
    hour = timedelta(hours=1)
    Run.objects.filter(pk=run.pk).update(created_at=F("created_at") - hour, started_at=F("started_at") - hour)
    Attempt.objects.filter(run=run).update(started_at=F("started_at") - hour, ended_at=F("ended_at") - hour)
    Wait.objects.filter(run=run).update(created_at=F("created_at") - hour, due_at=F("due_at") - hour)
