from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.checks import Tags, run_checks
from django.core.checks.registry import registry

KEY = Fernet.generate_key().decode()


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"SECRET_KEY": ""}, "wakeful.E001"),
        ({"SECRET_KEY": "short"}, "wakeful.E002"),
        ({"DEBUG": True, "ALLOWED_HOSTS": ["wakeful.example.com"]}, "wakeful.E003"),
        ({"WAKEFUL_ENCRYPTION_KEYS": [KEY, "not a key"]}, "wakeful.E004"),
        ({"WAKEFUL_LEASE": timedelta(seconds=5)}, "wakeful.E005"),
        ({"WAKEFUL_NOTIFY_THROTTLE": timedelta(milliseconds=30)}, "wakeful.E006"),
        ({"WAKEFUL_QUEUES": []}, "wakeful.E007"),
        ({"WAKEFUL_QUEUES": ["default", "all"]}, "wakeful.E008"),
        ({"WAKEFUL_LOOP_RATE": "often"}, "wakeful.E009"),
        ({"CELERY_BROKER_URL": "sentinel://127.0.0.1:26379"}, "wakeful.E010"),
        ({"EMAIL_URL": "mail.example.com"}, "wakeful.E031"),
        ({"WAKEFUL_NOTIFY_TO": "ops@example.com"}, "wakeful.E032"),
        ({"WAKEFUL_NOTIFY_TO": "mailto:ops@example.com", "EMAIL_URL": ""}, "wakeful.E032"),
        ({"WAKEFUL_URL": "wakeful.example.com"}, "wakeful.E033"),
        ({"WAKEFUL_QUERY_TABLES": ["shop_order"]}, "wakeful.W034"),
        ({"WAKEFUL_QUERY_URL": "postgres://reader:x@127.0.0.1/shop"}, "wakeful.W034"),
        ({"WAKEFUL_KEEP_EVENTS": timedelta(days=29)}, "wakeful.E020"),
        ({"WAKEFUL_KEEP_EVENTS": timedelta(days=2)}, "wakeful.W020"),
        ({"WAKEFUL_PRUNE_BUDGET": timedelta(hours=2)}, "wakeful.W021"),
        ({"WAKEFUL_ENCRYPTION_KEYS": []}, "wakeful.W001"),
        ({"WAKEFUL_ATOMIC_TIMEOUT": timedelta(hours=1)}, "wakeful.W002"),
        ({"CELERY_BEAT_SCHEDULER": "django_celery_beat.schedulers:DatabaseScheduler"}, "wakeful.W004"),
    ],
)
def test_a_wrong_combination_has_an_id_and_a_hint(settings: Any, wrong: dict[str, Any], expected: str) -> None:
    for name, value in wrong.items():
        setattr(settings, name, value)

    checks = registry.get_checks(include_deployment_checks=True)
    ours = [check for check in checks if check.__module__ == "config.checks" and Tags.database not in check.tags]
    found = [message for check in ours for message in check(app_configs=None, databases=None) if message.id == expected]

    assert len(found) == 1
    assert found[0].hint


def test_default_settings_raise_no_check_of_wakeful() -> None:
    ours = [message for message in run_checks(include_deployment_checks=True) if str(message.id).startswith("wakeful.")]

    assert ours == []
