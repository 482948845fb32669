"""An OpenTelemetry collector: a real HTTP server that takes OTLP over HTTP, decodes its protobuf and keeps what came."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.answering import answering


@dataclass(frozen=True, kw_only=True)
class Told:
    """A span as it came."""

    trace: str
    id: str
    parent: str
    name: str
    service: str
    began: int
    ended: int
    is_error: bool
    attributes: dict[str, Any]
    links: list[str]


@dataclass
class Collector:
    spans: list[Told] = field(default_factory=list)
    metrics: set[str] = field(default_factory=set)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""

    def of(self, trace: str) -> list[Told]:
        with self.lock:
            return [span for span in self.spans if span.trace == trace]

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        with self.lock:
            self.bodies.append(body)
            self.headers.append(headers)
            if path == "/v1/traces":
                self.spans += _spans(ExportTraceServiceRequest.FromString(body))
            else:
                self.metrics |= _names(ExportMetricsServiceRequest.FromString(body))


def _spans(request: ExportTraceServiceRequest) -> Iterator[Told]:
    for resource in request.resource_spans:
        about = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Told(
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    name=span.name,
                    service=about["service.name"],
                    began=span.start_time_unix_nano,
                    ended=span.end_time_unix_nano,
                    is_error=span.status.code == span.status.STATUS_CODE_ERROR,
                    attributes=_attributes(span.attributes),
                    links=[link.trace_id.hex() for link in span.links],
                )


def _names(request: ExportMetricsServiceRequest) -> set[str]:
    return {
        metric.name
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in pairs}


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            collector.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with answering(server) as collector.url:
        yield collector
