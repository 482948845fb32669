"""What an operator makes and changes: sources, triggers, tokens; schedules are in test_schedules."""

from typing import Any

import pytest
from django.test import Client

from runs.db.encryption import decrypt
from runs.models import AuditEntry
from tests.config.console.conftest import LogIn
from tests.support.console import make_source, page_of
from tests.support.triggers import make_event, make_trigger
from triggers.models import ApiToken, Event, Source, Trigger
from triggers.sources.secrets import rotate

NEW_TRIGGER = {
    "slug": "dear-invoices",
    "agent": "",
    "enabled": "on",
    "source": "",
    "types": "invoice.*",
    "filter": "event.data.amount > 100",
    "input": "{}",
    "key": "",
    "overlap": "allow",
    "queue": "default",
    "key_limit": "1",
    "rate": "",
    "overflow": "delay",
    "debounce": "0",
    "batch": "0",
    "max_wait": "0",
    "priority": "5",
    "timeout": "0",
    "retries": "3",
    "backoff": "1",
    "backoff_factor": "3",
    "backoff_max": "900",
    "pause_after": "10",
    "incident_after": "2",
}


@pytest.fixture
def agent() -> str:
    from agents import registry
    from agents.agent import Agent

    registry.register(Agent(name="console-test", body=lambda run: None))
    return "console-test"


def errors_of(answer: Any) -> dict[str, Any]:
    errors: dict[str, Any] = answer.context["form"].errors
    return errors


# Sources


def test_secret_of_a_new_source_is_shown_once_and_kept_encrypted(admin: Client) -> None:
    answer = admin.post(
        "/admin/triggers/source/add/",
        {
            "slug": "hub",
            "choice": "github",
            "enabled": "on",
            "github__reply": "no",
            "github__reply_api": "https://api.github.com/",
        },
    )

    secret = answer.context["secret"]
    source = Source.objects.get(slug="hub")
    kept = source.secrets.get()
    assert secret in answer.content.decode()
    assert "/hooks/hub/" in answer.content.decode()
    assert "no-store" in answer["Cache-Control"]
    assert bytes(kept.ciphertext) != secret.encode()
    assert decrypt(kept.ciphertext) == secret.encode()
    assert secret not in admin.get(page_of("triggers_source", source)).content.decode()
    assert secret not in str(list(AuditEntry.objects.values()))


def test_unverified_source_takes_a_deliberate_tick(admin: Client) -> None:
    form = {"slug": "open", "choice": "none", "enabled": "on", "none__without_id": "new"}

    refused = admin.post("/admin/triggers/source/add/", form)
    assert "none__unverified" in errors_of(refused)

    admin.post("/admin/triggers/source/add/", {**form, "none__unverified": "on"})
    assert Source.objects.get(slug="open").settings["unverified"] is True


def test_settings_are_checked_by_their_scheme(admin: Client) -> None:
    form = {
        "slug": "own",
        "choice": "hmac",
        "hmac__algorithm": "sha256",
        "hmac__encoding": "hex",
        "hmac__without_id": "new",
    }

    answer = admin.post("/admin/triggers/source/add/", {**form, "hmac__header": "X-Sig", "hmac__template": "no body"})

    assert "hmac__template" in errors_of(answer)
    assert not Source.objects.filter(slug="own").exists()


def test_new_secret_leaves_the_old_one_its_grace(admin: Client) -> None:
    source = make_source()
    rotate(source, by="test")

    path = page_of("triggers_source", source).replace("change", "rotate-secret")
    answer = admin.post(path, {"_form_submitted": "True", "hours": "0"})

    old, new = source.secrets.order_by("pk")
    assert old.not_after is not None
    assert new.not_after is None
    assert decrypt(new.ciphertext).decode() in answer.content.decode()


def test_secret_the_provider_made_is_checked_by_its_scheme(admin: Client) -> None:
    source = make_source(kind="standard_webhooks")
    path = page_of("triggers_source", source).replace("change", "enter-secret")

    admin.post(path, {"_form_submitted": "True", "hours": "24", "secret": "whsec_short"})
    assert not source.secrets.exists()

    admin.post(path, {"_form_submitted": "True", "hours": "24", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
    assert source.secrets.count() == 1


def test_built_in_sources_cannot_be_edited(admin: Client) -> None:
    source = Source.objects.get(slug="schedule")

    assert admin.get(page_of("triggers_source", source).replace("change", "edit")).status_code == 404


# Triggers


def test_trigger_stores_only_values_that_differ_from_the_defaults(admin: Client, agent: str) -> None:
    admin.post("/admin/triggers/trigger/add/", {**NEW_TRIGGER, "agent": agent, "retries": "0"})

    trigger = Trigger.objects.get(slug="dear-invoices")
    assert (trigger.types, trigger.policy, trigger.declared) == (["invoice.*"], {"retries": 0}, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("filter", "event.data.amount >"),
        ("filter", "evnt.data.amount > 1"),
        ("key", "event.("),
        ("input", '{"id": "event.("}'),
        ("input", "[1]"),
        ("priority", "12"),
    ],
)
def test_trigger_that_makes_no_sense_is_refused_at_its_field(admin: Client, agent: str, field: str, value: str) -> None:
    answer = admin.post("/admin/triggers/trigger/add/", {**NEW_TRIGGER, "agent": agent, field: value})

    assert field in errors_of(answer)


def test_key_requires_an_overlap_policy_that_uses_keys(admin: Client, agent: str) -> None:
    answer = admin.post("/admin/triggers/trigger/add/", {**NEW_TRIGGER, "agent": agent, "key": "event.data.id"})

    assert "overlap" in errors_of(answer)


def test_edited_field_of_a_declared_trigger_becomes_the_operators_until_it_is_given_back(admin: Client) -> None:
    declared = {
        "source": "",
        "types": ["visitor.*"],
        "filter": "",
        "input": {},
        "key": "",
        "overlap": "allow",
        "policy": {},
    }
    trigger = make_trigger(declared=declared)
    form = {**NEW_TRIGGER, "types": "visitor.*", "filter": "event.data.n > 1"}

    admin.post(page_of("triggers_trigger", trigger).replace("change", "edit"), form)
    trigger.refresh_from_db()
    assert (trigger.overrides, trigger.filter) == (["filter"], "event.data.n > 1")

    admin.post(page_of("triggers_trigger", trigger).replace("change", "reset"), {"_form_submitted": "True"})
    trigger.refresh_from_db()
    assert (trigger.overrides, trigger.filter) == ([], "")


def test_filter_is_tried_on_recent_events_and_starts_nothing(admin: Client) -> None:
    trigger = make_trigger()
    for data in ({"n": 1}, {"n": 5}, {}):
        make_event(data=data)
    make_event(type="other.thing")
    form = {"source": "", "types": "visitor.*", "filter": "event.data.n > 2", "key": "", "input": "{}"}

    shown = admin.post(page_of("triggers_trigger", trigger).replace("change", "try"), form).content.decode()

    assert "1 of 3 match" in shown
    assert "event.data.n &gt; 2 is false" in shown
    assert shown.count("console-dot-bad") == 1
    assert Event.objects.filter(dispatched_at=None).count() == 4
    assert Trigger.objects.get(pk=trigger.pk).filter == ""


# Tokens


def test_token_is_shown_once_and_stored_as_a_hash(admin: Client) -> None:
    answer = admin.post("/admin/triggers/apitoken/add/", {"name": "deploy", "granted": ["runs.view_run"]})

    token = ApiToken.objects.get(name="deploy")
    secret = answer.context["secret"]
    assert token.permissions == ["runs.view_run"]
    assert secret not in token.hash
    assert secret not in admin.get(page_of("triggers_apitoken", token)).content.decode()


def test_token_without_permissions_or_with_a_bad_name_is_refused(admin: Client) -> None:
    assert errors_of(admin.post("/admin/triggers/apitoken/add/", {"name": "deploy"}))
    assert errors_of(admin.post("/admin/triggers/apitoken/add/", {"name": "de ploy", "everything": "on"}))
    assert not ApiToken.objects.exists()


def test_token_never_may_more_than_its_maker(log_in: LogIn) -> None:
    client = log_in("triggers.add_apitoken", "runs.view_run")
    path = "/admin/triggers/apitoken/add/"

    assert "granted" in errors_of(client.post(path, {"name": "a", "granted": ["runs.cancel_run"]}))
    assert errors_of(client.post(path, {"name": "a", "everything": "on"}))
    client.post(path, {"name": "a", "granted": ["runs.view_run"]})

    assert ApiToken.objects.get().permissions == ["runs.view_run"]
