"""The OpenTelemetry SDK, set up on first use: a process that forks sends nothing itself before. What its standard environment
variables say (sampling, resource, batches, compression, time-outs) goes."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from agents.kernel.redaction import redacted

if TYPE_CHECKING:
    from agents.telemetry import Span

NAME = "wakeful"
FLUSH = 2_000  # milliseconds that a process which ends waits for its spans to be sent

_next: ContextVar["Span | None"] = ContextVar("span", default=None)


class Ids(RandomIdGenerator):
    """The ids of the span that is being recorded; random ids for live spans."""

    def generate_span_id(self) -> int:
        span = _next.get()
        return span.id if span else super().generate_span_id()

    def generate_trace_id(self) -> int:
        span = _next.get()
        return span.trace.int if span else super().generate_trace_id()


class Mixed(Sampler):
    """Some samplers take a part of all traces by the size of their ids. Those of UUIDs have bits that are always the same."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def should_sample(
        self, parent_context: Context | None, trace_id: int, *arguments: Any, **named: Any
    ) -> SamplingResult:
        mixed = int.from_bytes(sha256(trace_id.to_bytes(16)).digest()[:16])
        return self._sampler.should_sample(parent_context, mixed, *arguments, **named)

    def get_description(self) -> str:
        return self._sampler.get_description()


class Redacting(SpanExporter):
    """No secret leaves with a span."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._exporter.export([_redacted(span) for span in spans])

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = FLUSH) -> bool:
        return self._exporter.force_flush(timeout_millis)


class Sdk:
    def __init__(self, *, service: str, endpoint: str, headers: str, keeps_content: bool) -> None:
        # Only the settings know values from NAME_FILE or from the file of `manage.py up`.
        for name, value in (("ENDPOINT", endpoint), ("HEADERS", headers)):
            if value:
                os.environ.setdefault(f"OTEL_EXPORTER_OTLP_{name}", value)
        # A killed process loses spans that it has not sent, and no replay records them again.
        os.environ.setdefault("OTEL_BSP_SCHEDULE_DELAY", "1000")
        self._service = service
        self._keeps_content = keeps_content
        self._histograms: dict[str, Any] = {}

    @cached_property
    def _resource(self) -> Resource:
        return Resource.create({"service.name": self._service})

    @cached_property
    def _traces(self) -> TracerProvider:
        provider = TracerProvider(resource=self._resource, id_generator=Ids())
        provider.sampler = Mixed(provider.sampler)
        provider.add_span_processor(BatchSpanProcessor(Redacting(OTLPSpanExporter())))
        return provider

    @cached_property
    def _metrics(self) -> MeterProvider:
        return MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource=self._resource)

    @cached_property
    def _tracer(self) -> trace.Tracer:
        return self._traces.get_tracer(NAME)

    def record(
        self,
        span: "Span",
        name: str,
        parent: "Span | None",
        began: datetime,
        ended: datetime,
        attributes: Mapping[str, Any],
        error: str,
        remote: str,
        is_consumer: bool,
    ) -> None:
        token = _next.set(span)
        try:
            told = self._tracer.start_span(
                name,
                context=self._context(parent) if parent else Context(),
                kind=SpanKind.CONSUMER if is_consumer else SpanKind.INTERNAL,
                attributes={key: value for key, value in attributes.items() if value not in (None, "")},
                links=_links(remote),
                start_time=_nanoseconds(began),
            )
        finally:
            _next.reset(token)
        if error:
            told.set_status(Status(StatusCode.ERROR, error))
        told.end(_nanoseconds(ended))

    @contextmanager
    def within(self, span: "Span") -> Iterator[None]:
        token = attach(self._context(span))
        try:
            yield
        finally:
            detach(token)

    @contextmanager
    def doing(self, name: str, attributes: Mapping[str, Any]) -> Iterator[None]:
        if not _is_within():
            yield
            return
        with self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except Exception as error:
                # Its message may quote what the agent works on.
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                span.set_attribute("error.type", type(error).__name__)
                raise

    def instrumentation(self) -> Sequence[Any]:
        if not _is_within():
            return []
        from pydantic_ai.capabilities import Instrumentation
        from pydantic_ai.models.instrumented import InstrumentationSettings

        return [
            Instrumentation(
                InstrumentationSettings(
                    tracer_provider=self._traces,
                    meter_provider=self._metrics,
                    include_content=self._keeps_content,
                    include_binary_content=False,
                    include_model_request_parameters=self._keeps_content,
                )
            )
        ]

    def count_seconds(self, name: str, seconds: float, attributes: Mapping[str, str]) -> None:
        if name not in self._histograms:
            self._histograms[name] = self._metrics.get_meter(NAME).create_histogram(name, unit="s")
        self._histograms[name].record(seconds, attributes)

    def flush(self) -> None:
        if "_traces" in vars(self):
            self._traces.force_flush(FLUSH)
        if "_metrics" in vars(self):
            self._metrics.force_flush(FLUSH)

    def shut_down(self) -> None:
        if "_traces" in vars(self):
            self._traces.shutdown()
        if "_metrics" in vars(self):
            self._metrics.shutdown()

    def _context(self, span: "Span") -> Context:
        """The span as the parent of others. It is sampled if the root of its trace is, which every process decides in
        the same way.
        """
        decision = self._traces.sampler.should_sample(None, span.trace.int, NAME).decision
        flags = TraceFlags(TraceFlags.SAMPLED if decision is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT)
        context = SpanContext(span.trace.int, span.id, is_remote=True, trace_flags=flags)
        return trace.set_span_in_context(NonRecordingSpan(context), Context())


def _redacted(span: ReadableSpan) -> ReadableSpan:
    return ReadableSpan(
        name=redacted(span.name),
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=_clean(span.attributes),
        events=[Event(event.name, _clean(event.attributes), event.timestamp) for event in span.events],
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code, redacted(span.status.description or "") or None),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _clean(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: redacted(value) if isinstance(value, str) else value for key, value in (attributes or {}).items()}


def _is_within() -> bool:
    """A shadow run, or one in a test, belongs to no trace."""
    return trace.get_current_span().get_span_context().is_valid


def _links(remote: str) -> list[Link]:
    context = trace.get_current_span(TraceContextTextMapPropagator().extract({"traceparent": remote}, Context()))
    found = context.get_span_context()
    return [Link(found)] if found.is_valid else []


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1_000
