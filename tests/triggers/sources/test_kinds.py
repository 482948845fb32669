"""What every kind of source promises, whichever it is."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.support.deliveries import NOW, delivery, secrets
from triggers.sources.kind import Group, kinds
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.receive import Receipt, cleaned, receive
from triggers.sources.webhooks.scheme import Delivery, Sample, Scheme, schemes

SETTINGS: dict[str, dict[str, Any]] = {  # of kinds whose defaults alone are invalid
    "none": {"unverified": True},
    "pubsub": {"account": "push@shop-1.iam.gserviceaccount.com"},
    "sns": {"topic": "arn:aws:sns:eu-west-1:123456789012:uploads"},
}
ADDRESS = "https://wakeful.example.com/hooks/test/"
SIGNED = [
    kind for kind, scheme in schemes().items() if scheme.needs_secret and scheme.sample(scheme.clean_settings({}))
]


def sent(scheme: Scheme[Any], secret: str, *, minutes: int = 0) -> Sample:
    settings = scheme.clean_settings(SETTINGS.get(scheme.name, {}))
    sample = scheme.sample(settings)
    assert sample
    return scheme.signed(replace(sample, url=ADDRESS), secret.encode(), NOW + timedelta(minutes=minutes), settings)


def as_delivery(sample: Sample) -> Delivery:
    return replace(delivery(sample.body, sample.headers), method=sample.method, url=sample.url)


def receipt_of(scheme: Scheme[Any], sample: Sample, *values: str) -> Receipt:
    receipt = receive(*cleaned(scheme.name, SETTINGS.get(scheme.name, {})), secrets(*values), as_delivery(sample))
    assert isinstance(receipt, Receipt)
    return receipt


@pytest.mark.parametrize("name", kinds())
def test_every_kind_explains_itself(name: str) -> None:
    kind = kinds()[name]

    assert kind.name == name and kind.label and kind.help_text.endswith(".")
    assert isinstance(kind.group, Group)
    assert kind.setup and all(step.endswith(".") for step in kind.setup)
    assert not kind.docs_url or kind.docs_url.startswith("https://")
    assert [field.label for field in kind.fields if not field.label] == []
    assert name not in schemes() or any("{url}" in step for step in kind.setup)


def test_no_two_kinds_have_one_label() -> None:
    labels = [kind.label for kind in kinds().values()]

    assert len(labels) == len(set(labels))


@pytest.mark.parametrize("name", SIGNED)
def test_a_sample_of_every_scheme_is_accepted_with_its_secret_alone(name: str) -> None:
    scheme = schemes()[name]
    secret, other = (scheme.clean_secret(scheme.new_secret()) for _ in range(2))
    sample = sent(scheme, secret)

    receipt = receipt_of(scheme, sample, other, secret)

    assert receipt.secret is not None and receipt.secret.id == 2
    assert receipt.event.ce_id and receipt.event.type
    for refused in (sent(scheme, other), scheme.sample(scheme.clean_settings(SETTINGS.get(name, {})))):
        assert refused
        with pytest.raises(Rejected):
            receipt_of(scheme, replace(refused, url=ADDRESS), secret)


@pytest.mark.parametrize("name", SIGNED)
def test_a_sample_that_is_signed_too_early_or_late_is_refused_if_its_time_is_signed(name: str) -> None:
    scheme = schemes()[name]
    secret = scheme.clean_secret(scheme.new_secret())
    settings = scheme.clean_settings(SETTINGS.get(name, {}))
    proof = scheme.prove(as_delivery(sent(scheme, secret)), secrets(secret), settings)

    for minutes in (-6 - scheme.retried_for // timedelta(minutes=1), 6):
        late = sent(scheme, secret, minutes=minutes)
        if proof.signed_at:
            with pytest.raises(Rejected):
                receipt_of(scheme, late, secret)
        else:
            assert receipt_of(scheme, late, secret)


@pytest.mark.parametrize("name", schemes())
def test_two_samples_are_two_events(name: str) -> None:
    scheme = schemes()[name]
    secret = scheme.clean_secret(scheme.new_secret()) if scheme.needs_secret else ""
    if scheme.sample(scheme.clean_settings(SETTINGS.get(name, {}))) is None:
        pytest.skip("only the sender can prove a delivery")

    ids = {receipt_of(scheme, sent(scheme, secret), secret).event.ce_id for _ in range(2)}

    assert len(ids) == 2


def test_the_address_of_a_list_stands_above_the_paths_into_it() -> None:
    assert [field.name for field in kinds()["json_list"].fields][:2] == ["url", "items_path"]
