import django
import pytest
from django.test import override_settings

from triggers.agents import _has_backend

pytestmark = pytest.mark.skipif(django.VERSION >= (6,), reason="Django has tasks")


def test_without_tasks_of_django_the_backend_says_so_and_nothing_else_changes() -> None:
    with pytest.raises(ImportError, match=r"django\.tasks, which Django has from 6\.0 on; this is Django 5\.2"):
        from wakeful import TaskBackend  # noqa: F401

    assert not _has_backend()


def test_settings_of_django_6_with_the_backend_start_all_the_same() -> None:
    with override_settings(TASKS={"default": {"BACKEND": "wakeful.TaskBackend"}}):
        assert not _has_backend()
