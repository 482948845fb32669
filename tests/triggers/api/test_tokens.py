from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from runs.models import AuditEntry
from tests.support.api import Api
from triggers.api.tokens import create_token, ensure_token, revoke
from triggers.models import ApiToken

pytestmark = pytest.mark.django_db


def test_only_the_hash_of_a_token_is_stored() -> None:
    token, plain = create_token("ci", ["runs.view_run"], by="admin:ada")

    assert plain not in str(ApiToken.objects.values().get())
    assert (token.source.slug, token.source.kind) == ("api-ci", "api")
    assert AuditEntry.objects.get().detail == {"permissions": ["runs.view_run"]}


def test_a_misspelt_permission_is_refused_when_the_token_is_made() -> None:
    with pytest.raises(ValidationError, match="runs.veiw_run"):
        create_token("ci", ["runs.veiw_run"], by="admin:ada")

    assert not ApiToken.objects.exists()


@pytest.mark.parametrize("name", ["", "two words", "ünï", "ci"])
def test_a_token_needs_a_name_of_its_own_that_can_name_a_source(name: str) -> None:
    create_token("ci", ["*"], by="admin:ada")

    with pytest.raises(ValidationError) as refused:
        create_token(name, ["*"], by="admin:ada")

    assert list(refused.value.message_dict) == ["name"]


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic d3JvbmcK", "Bearer wr\xf6ng"])
def test_no_token_or_a_wrong_one_is_401(header: str) -> None:
    answer = Client(headers={"Authorization": header}).get("/api/v1/runs/")

    assert answer.status_code == 401
    assert answer["WWW-Authenticate"] == 'Bearer realm="wakeful"'


def test_a_revoked_token_is_401() -> None:
    api = Api()
    revoke(api.token, by="admin:ada")
    revoke(api.token, by="admin:ada")

    assert api.get("runs/").status == 401
    assert AuditEntry.objects.filter(action="revoke").count() == 1


def test_the_last_use_is_noted_at_most_once_a_minute() -> None:
    api = Api()
    api.get("runs/")
    first = ApiToken.objects.get().last_used_at
    api.get("runs/")
    second = ApiToken.objects.get().last_used_at
    ApiToken.objects.update(last_used_at=timezone.now() - timedelta(minutes=2))
    api.get("runs/")
    third = ApiToken.objects.get().last_used_at

    assert first == second
    assert first and third and third > first


def test_ensure_token_makes_changes_and_keeps() -> None:
    made = ensure_token("env", "plain-1", ["*"])
    kept = ensure_token("env", "plain-1", ["*"])
    changed = ensure_token("env", "plain-2", ["runs.view_run"])

    assert made.pk == kept.pk == changed.pk
    assert made.hash == kept.hash != changed.hash
    assert ApiToken.objects.get().permissions == ["runs.view_run"]


def test_a_revoked_token_comes_back_only_with_another_plain_text() -> None:
    revoke(ensure_token("env", "plain-1", ["*"]), by="admin:ada")

    assert ensure_token("env", "plain-1", ["*"]).revoked_at is not None
    assert ensure_token("env", "plain-2", ["*"]).revoked_at is None
