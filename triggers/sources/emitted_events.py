"""Events that runs emit: an outbox topic that ends in `accept`."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from triggers.accept import Incoming, accept, builtin_source


def record_emitted(payloads: Sequence[dict[str, Any]]) -> None:
    """Record the events of committed runs; each keeps its place in the causal chain."""
    accept(
        [
            Incoming(
                source_id=builtin_source("run"),
                ce_source=payload["ce_source"],
                ce_id=payload["ce_id"],
                type=payload["type"],
                subject=payload["subject"],
                data=payload["data"],
                root_id=UUID(payload["root_id"]),
                cause_event_id=UUID(payload["cause_event_id"]) if payload["cause_event_id"] else None,
                cause_run_id=UUID(payload["cause_run_id"]),
                depth=payload["depth"],
                chain=payload.get("chain", []),
                is_tainted=payload.get("is_tainted", False),
            )
            for payload in payloads
        ]
    )
