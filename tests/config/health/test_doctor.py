import io
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import call_command

from config.health import doctor
from runs.models import Worker
from tests.support.triggers import make_trigger
from triggers.models import Source
from triggers.sources.secrets import rotate

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_whole_installation_has_nothing_wrong() -> None:
    processes("worker", "dispatcher", "beat")

    assert examined() == {}


def test_every_fault_has_a_fix_and_makes_the_command_fail() -> None:
    processes("worker", "dispatcher")
    output = io.StringIO()

    with pytest.raises(SystemExit) as ended:
        call_command("doctor", stdout=output)

    assert ended.value.code == 1
    assert "WRONG  No beat has ever been seen: no schedule fires" in output.getvalue()
    assert "       fix: Start one: `celery -A config beat`" in output.getvalue()
    assert "1 to fix." in output.getvalue()


def test_secrets_made_with_a_lost_key_are_named_by_their_source(settings: Any) -> None:
    rotate(Source.objects.create(slug="shop", kind="hmac"), by="test")
    settings.WAKEFUL_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]

    assert "secrets of these sources cannot be decrypted: shop" in examined()


def test_a_type_whose_events_meet_many_filters_one_by_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MANY_FILTERS", 2)
    for number in range(3):
        make_trigger(f"large-{number}", types=["order.*"], filter=f"size(event.data.items) > {number}")
        make_trigger(f"of-{number}", types=["cart.*"], filter=f'event.data.customer == "c{number}" && event.data.n > 1')

    found = examined()

    assert [fault for fault in found if "that no index finds" in fault] == [
        "3 triggers on order.* have a filter that no index finds: each such event is matched against all of them"
    ]


def test_a_missing_migration_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.db.schema_check.needed_migrations", lambda: [("runs", "9999_from_the_future")])

    [(fault, fix)] = [item for item in examined().items() if "migrations" in item[0]]

    assert "runs.9999_from_the_future" in fault
    assert "manage.py migrate" in fix


def test_a_lost_broker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "broker_answers", lambda: False)

    assert "CELERY_BROKER_URL" in examined()["the broker does not answer: work continues, but late"]


def test_a_pooler_in_transaction_mode_is_found_by_the_notify_that_gets_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    # What such a pooler does: the LISTEN happens, but in a session that is not ours afterwards.
    monkeypatch.setattr("psycopg.Connection.notifies", lambda self, **options: iter(()))

    assert "transaction-mode pooler" in examined()["a NOTIFY does not reach its listener"]


def test_wrong_settings_are_shown_beside_everything_else(settings: Any) -> None:
    settings.SECRET_KEY = "short"

    assert "wakeful.E002: SECRET_KEY is short enough to be guessed." in examined()


def test_the_knobs_are_listed_without_their_secrets(settings: Any) -> None:
    output = io.StringIO()

    call_command("doctor", "--knobs", stdout=output)

    assert "WAKEFUL_LEASE=0:00:08" in output.getvalue()
    assert settings.SECRET_KEY not in output.getvalue()


def examined() -> dict[str, str]:
    return {finding.text: finding.fix for finding in doctor.examine() if finding.fix}


def processes(*kinds: str) -> None:
    make: Callable[..., Worker] = Worker.objects.create
    for number, kind in enumerate(kinds):
        make(kind=kind, host="here", pid=number, version="1")
