from . import (  # noqa: F401  (importing an agent's file registers it)
    github_issue_triage,
    heartbeat,
    invoice_chaser,
    order_intake,
    order_refund,
    order_shipment,
    reminder,
    triage_digest,
)
