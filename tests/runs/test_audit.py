"""The audit log is written once: entries are deleted by retention alone, and nothing rewrites them."""

import os
import pwd
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import override_settings

from config.retention import prune
from runs.management.operator import operator
from runs.models import AuditEntry
from tests.support.old_rows import ago

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs_auditentry SET by = 'admin:eve'",
        "UPDATE runs_auditentry SET detail = '{}'",
        "DELETE FROM runs_auditentry",
        "TRUNCATE runs_auditentry",
        "SELECT set_config('wakeful.removing', 'on', true); UPDATE runs_auditentry SET by = 'admin:eve'",
        """SELECT set_config('wakeful.removing', 'on', true); UPDATE runs_auditentry SET detail = '{"a": 2}'""",
        "SELECT set_config('wakeful.removing', 'on', true); TRUNCATE runs_auditentry",
    ],
)
def test_the_database_refuses_changes(statement: str) -> None:
    AuditEntry.objects.create(by="admin:ada", action="look", kind="run", object_id="1", detail={"a": 1})

    with (
        pytest.raises(IntegrityError, match="audit entries are immutable"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("ALTER TABLE runs_auditentry ENABLE TRIGGER audit_not_truncated")
        for one in statement.split("; "):
            cursor.execute(one)

    assert AuditEntry.objects.get().detail == {"a": 1}


def test_retention_deletes_old_entries_and_no_others() -> None:
    for days in (3, 1):
        AuditEntry.objects.create(by="admin:ada", action="look", kind="run", object_id=str(days), at=ago(days=days))

    with override_settings(WAKEFUL_KEEP_AUDIT=timedelta(days=2)):
        prune()

    assert [entry.object_id for entry in AuditEntry.objects.filter(action="look")] == ["1"]


def test_the_person_at_the_command_line_is_who_the_process_runs_as(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "ceo")

    assert operator() == f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
