"""Secrets that no delivery uses, and senders that still use an old one, are problems with a remedy."""

from datetime import timedelta

import pytest
from django.utils import timezone

from config.health.problems import problems
from config.health.situation import read_situation
from runs.sign import Problem
from tests.support.hooks import add_secret, make_source
from triggers.models import Secret, Source
from triggers.sources.webhooks.signs.unused_secrets import UNUSED as SECRET_UNUSED

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def of_secrets() -> list[Problem]:
    return [one for one in problems(read_situation()) if one.name.split(":")[0] in ("rotation", "unused-secret")]


def aged(secret: Secret, *, created: timedelta, matched: timedelta | None = None) -> None:
    now = timezone.now()
    matched_at = None if matched is None else now - matched
    Secret.objects.filter(pk=secret.pk).update(
        created_at=now - created, not_before=now - created, last_matched_at=matched_at
    )


def test_a_valid_secret_that_no_delivery_uses_any_more_is_named_with_its_remedy() -> None:
    source = make_source()
    secret = source.secrets.get()
    aged(secret, created=300 * DAY, matched=SECRET_UNUSED + DAY)

    [problem] = of_secrets()

    assert problem.name == f"unused-secret:shop:{secret.pk}"
    assert "no delivery has used it for" in problem.text and "disable it" in problem.remedy
    for fields in ({"enabled": False}, {"enabled": True}):
        Source.objects.filter(pk=source.pk).update(**fields)
        assert len(of_secrets()) == fields["enabled"]
    aged(secret, created=300 * DAY, matched=SECRET_UNUSED - DAY)
    assert of_secrets() == []


def test_a_secret_that_no_one_has_used_yet_is_no_problem_until_another_one_is_used() -> None:
    source = make_source()
    aged(source.secrets.get(), created=300 * DAY)
    assert of_secrets() == []

    aged(add_secret(source, "another"), created=200 * DAY, matched=DAY)

    assert [problem.name.rpartition(":")[0] for problem in of_secrets()] == ["unused-secret:shop"]


@pytest.mark.parametrize(
    ("left", "old_matched", "new_matched", "is_complete"),
    [
        (timedelta(hours=3), timedelta(hours=1), None, True),
        (timedelta(hours=12), timedelta(hours=1), None, False),  # there is time
        (timedelta(hours=3), timedelta(hours=30), None, False),  # nothing has come since the rotation
        (timedelta(hours=3), timedelta(hours=1), timedelta(minutes=5), False),  # the sender has the new one
        (timedelta(hours=-1), timedelta(hours=1), None, False),  # it is over: deliveries are refused
    ],
)
def test_a_sender_that_still_uses_the_old_secret_is_reported_before_it_ends(
    left: timedelta, old_matched: timedelta, new_matched: timedelta | None, is_complete: bool
) -> None:
    source = make_source()
    aged(source.secrets.get(), created=40 * DAY, matched=old_matched)
    source.secrets.update(not_after=timezone.now() + left)
    aged(add_secret(source, "the new one"), created=timedelta(hours=20), matched=new_matched)

    found = of_secrets()

    assert [problem.name for problem in found] == (["rotation:shop"] if is_complete else [])
    if is_complete:
        assert "It ends in 3 h" in found[0].text or "It ends in 2 h 59 min" in found[0].text
        assert "Enter the new secret at the sender" in found[0].remedy
