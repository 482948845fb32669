import json
from datetime import UTC, datetime

import pytest

from tests.support.deliveries import take
from triggers.sources.webhooks.proof import Rejected

# Secret, body and signature of the tests of PagerDuty's own client, go-pagerduty/webhookv3.
SECRET = "lDQHScfUeXUKaQRNF+8XIiDKZ7XX3itBAYzwU0TARw8lJqRnkKl2iB1anSb0Z+IK"
SIGNATURE = "v1=0c0b9495b893a39e70d1fea2fe11fbe0a825f88b9f67846f6cc07dd2bc5476cd"
SITE, API = "https://acme.pagerduty.com", "https://api.pagerduty.com"


def reference(kind: str, path: str, id_: str, summary: str) -> dict[str, str]:
    return {
        "html_url": f"{SITE}/{path}/{id_}",
        "id": id_,
        "self": f"{API}/{path}/{id_}",
        "summary": summary,
        "type": f"{kind}_reference",
    }


INCIDENT = {
    "id": "PGR0VU2",
    "type": "incident",
    "self": f"{API}/incidents/PGR0VU2",
    "html_url": f"{SITE}/incidents/PGR0VU2",
    "number": 2,
    "status": "triggered",
    "title": "A little bump in the road",
    "service": reference("service", "services", "PF9KMXH", "API Service"),
    "assignees": [reference("user", "users", "PTUXL6G", "User 123")],
    "escalation_policy": reference("escalation_policy", "escalation_policies", "PUS0KTE", "Default"),
    "teams": [reference("team", "teams", "PFCVPS0", "Engineering")],
    "priority": reference("priority", "priorities", "PSO75BM", "P1")
    | {"html_url": f"{SITE}/account/incident_priorities"},
    "urgency": "high",
    "conference_bridge": {"conference_number": 1000, "conference_url": "https://example.com"},
    "resolve_reason": None,
}
EVENT = {
    "id": "01BWDWL3NYY7LUFPZCC28QUCMK",
    "event_type": "incident.priority_updated",
    "resource_type": "incident",
    "occurred_at": "2021-04-26T17:36:27.458Z",
    "agent": reference("user", "users", "PLH1HKV", "Tenex Engineer"),
    "client": None,
    "data": INCIDENT,
}
BODY = json.dumps({"event": EVENT}, separators=(",", ":")).encode()


def test_the_example_of_pagerdutys_client_is_accepted_and_described() -> None:
    event = take("pagerduty", BODY, {"X-PagerDuty-Signature": SIGNATURE}, SECRET).event

    assert (event.ce_id, event.type) == ("01BWDWL3NYY7LUFPZCC28QUCMK", "incident.priority_updated")
    assert event.subject == "PGR0VU2"
    assert event.time == datetime(2021, 4, 26, 17, 36, 27, 458000, tzinfo=UTC)
    assert event.headers["x-pagerduty-signature"] == "[redacted]"


def test_while_a_secret_is_replaced_one_of_several_signatures_is_enough() -> None:
    other = "v1=130dcacb53a94d983a37cf2acba98e805a1c37185309ba56fdcccbcf00d6dd8b"

    for header in (f"{other},{SIGNATURE}", f"{SIGNATURE}, {other}", f"v2=abc,{SIGNATURE}"):
        assert take("pagerduty", BODY, {"X-PagerDuty-Signature": header}, SECRET).secret


@pytest.mark.parametrize("header", ["", ",", SIGNATURE[3:], f"v2={SIGNATURE[3:]}", f"{SIGNATURE},{SIGNATURE}"])
def test_a_malformed_header_is_refused(header: str) -> None:
    with pytest.raises(Rejected):
        take("pagerduty", BODY, {"X-PagerDuty-Signature": header}, SECRET)


def test_a_flood_of_signatures_is_refused() -> None:
    header = ",".join([SIGNATURE, *(f"v1={number}" for number in range(16))])

    with pytest.raises(Rejected, match="more than 16"):
        take("pagerduty", BODY, {"X-PagerDuty-Signature": header}, SECRET)
