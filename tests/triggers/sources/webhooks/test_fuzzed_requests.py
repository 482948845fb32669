"""Requests as attackers and broken senders make them, to the real view: 10,000 of them in `make chaos`."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from tests.support.examples import FULL
from tests.support.hooks import make_source
from tests.triggers.sources.webhooks.test_every_scheme import ADDRESS, PROVED, Case
from triggers.models import Event
from triggers.sources.webhooks.scheme import Sample

pytestmark = [pytest.mark.sampled, pytest.mark.django_db, pytest.mark.urls("tests.triggers.sources.urls")]

REQUESTS = 10_000 if FULL else 200


def genuine(case: Case, slug: str, secret: str = "", minutes: int = 0) -> Sample:
    cleaned = case.scheme.clean_settings(case.settings)
    sample = case.scheme.sample(cleaned)
    assert sample
    sample = replace(sample, url=ADDRESS.replace("test", slug))
    at = timezone.now() + timedelta(minutes=minutes)
    return case.scheme.signed(sample, (secret or case.secret).encode(), at, cleaned)


def noise(chance: random.Random) -> str:
    return chance.randbytes(chance.randrange(80)).decode("latin-1")


def forged(case: Case, slug: str, chance: random.Random) -> Sample:
    """A request that its sender has not signed."""
    if not case.proof_headers:  # its proof stands in the body, and does not cover all of it
        return genuine(case, slug, secret=case.other_secret)
    sample = genuine(case, slug)
    name = chance.choice(case.proof_headers)
    other = chance.choice(PROVED)
    changes: list[Callable[[], Sample]] = [
        lambda: genuine(case, slug, secret=case.other_secret),
        lambda: replace(sample, headers={key: value for key, value in sample.headers.items() if key != name}),
        lambda: replace(sample, headers={**sample.headers, name: noise(chance)}),
        lambda: replace(sample, headers={**sample.headers, name: f"{sample.headers[name]},{sample.headers[name]}"}),
        lambda: replace(sample, headers={noise(chance) or "x": noise(chance) for _ in range(9)}),
        lambda: replace(
            other.genuine, url=sample.url, headers={**sample.headers, **other.genuine.headers, name: noise(chance)}
        ),
    ]
    if not case.sends_secret:
        changes += [
            lambda: replace(sample, body=sample.body[: chance.randrange(len(sample.body))]),
            lambda: replace(sample, body=chance.randbytes(chance.randrange(1, 500))),
            lambda: replace(sample, body=sample.body.replace(b"e", b"\xff", 1)),
        ]
    return chance.choice(changes)()


def test_no_request_is_an_error_of_the_server_and_no_forgery_an_event(settings: Settings) -> None:
    settings.WAKEFUL_URL, settings.WAKEFUL_MAX_SOURCE_BACKLOG = ADDRESS.partition("/hooks")[0], 10**6
    for number, case in enumerate(PROVED):
        make_source(f"s{number}", case.kind, case.secret, settings=dict(case.settings))
    chance, client = random.Random(14), Client()  # one client: each loads the middleware
    statuses: Counter[int] = Counter()

    for _ in range(REQUESTS):
        number = chance.randrange(len(PROVED))
        case, slug = PROVED[number], f"s{number}"
        is_genuine = chance.random() < 0.1
        sample = genuine(case, slug) if is_genuine else forged(case, slug, chance)
        headers = sent_headers(sample)
        content_type = headers.pop("Content-Type", "application/json")
        answer = client.generic(
            "POST",
            urlsplit(sample.url).path,
            sample.body,
            content_type,
            headers=headers,
            CONTENT_LENGTH=str(len(sample.body)),
        )
        statuses[answer.status_code] += 1
        # A wrong token of a ping is answered like an unknown address.
        expected = (200, 202) if is_genuine else (400, 404 if case.kind == "ping" else 401)
        assert answer.status_code in expected, (case, sample, answer.status_code)

    assert Event.objects.count() == statuses[200] + statuses[202] > 0


def sent_headers(sample: Sample) -> dict[str, str]:
    """Header fields that a server passes on: their names are tokens, and line breaks end them."""
    fields = {name: value.replace("\r", "").replace("\n", "") for name, value in sample.headers.items()}
    return {name: value for name, value in fields.items() if name.isascii() and name.replace("-", "").isalnum()}
