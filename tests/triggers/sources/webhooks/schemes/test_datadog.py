import json
from datetime import timedelta

import pytest

from tests.support.deliveries import NOW, take
from triggers.accept import Incoming
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.scheme import schemes
from triggers.sources.webhooks.schemes.datadog import TEMPLATE

TOKEN = "datadog-token"
PROVEN = {"Authorization": f"Bearer {TOKEN}"}


def filled(**values: str) -> bytes:
    """The template as Datadog fills it in; it leaves variables that it does not know."""
    return json.dumps({**TEMPLATE, "id": "7700912", "transition": "Triggered", "cycle": "41", **values}).encode()


def event_of(body: bytes) -> Incoming:
    return take("datadog", body, PROVEN, TOKEN).event


def test_an_alert_is_an_event_named_by_its_transition() -> None:
    event = event_of(filled(title="[Triggered] Disk of db-1"))

    assert (event.ce_id, event.type, event.subject) == ("7700912:Triggered", "monitor.triggered", "41")
    assert event.data["title"] == "[Triggered] Disk of db-1"


@pytest.mark.parametrize(
    ("transition", "type_"),
    [
        ("Recovered", "monitor.recovered"),
        ("Re-No Data", "monitor.re_no_data"),
        ("$ALERT_TRANSITION", "monitor.notified"),
    ],
)
def test_each_transition_is_a_type(transition: str, type_: str) -> None:
    assert event_of(filled(transition=transition)).type == type_


def test_a_retry_is_the_same_event_and_a_recovery_another() -> None:
    first = event_of(filled())

    assert event_of(filled(text="the same, written again")).ce_id == first.ce_id
    assert event_of(filled(transition="Recovered")).ce_id != first.ce_id


@pytest.mark.parametrize("body", [b'{"body": "of another template"}', filled(id="$ID"), b"id=form&encoded", b"", b"[]"])
def test_a_payload_without_an_id_is_named_by_its_bytes(body: bytes) -> None:
    event = event_of(body)

    assert event.ce_id == event_of(body).ce_id != event_of(body + b" ").ce_id
    assert event.ce_id.startswith("sha256:")


@pytest.mark.parametrize(
    "value", ["", TOKEN, f"Bearer {TOKEN.upper()}", f"Bearer {TOKEN}, Bearer {TOKEN}", f"Basic {TOKEN}"]
)
def test_a_delivery_without_the_token_is_refused(value: str) -> None:
    with pytest.raises(Rejected):
        take("datadog", filled(), {"Authorization": value}, TOKEN)


def test_the_sample_is_the_template_of_the_set_up_steps() -> None:
    scheme = schemes()["datadog"]
    settings = scheme.clean_settings({})
    sample = scheme.sample(settings)
    assert sample

    signed = scheme.signed(sample, TOKEN.encode(), NOW + timedelta(days=1), settings)

    assert set(json.loads(signed.body)) == set(TEMPLATE)
    assert any(json.dumps(TEMPLATE) in step for step in scheme.setup)
    assert take("datadog", signed.body, signed.headers, TOKEN).event.type == "monitor.triggered"
