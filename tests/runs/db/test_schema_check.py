import pytest
from django.db.migrations.recorder import MigrationRecorder

from runs.db.schema_check import NotMigrated, require_migrations

pytestmark = pytest.mark.django_db

APPLIED = MigrationRecorder.Migration.objects


def test_a_missing_migration_is_named_with_the_command_that_applies_it() -> None:
    require_migrations()
    APPLIED.filter(app="triggers", name="0002_rules").delete()

    with pytest.raises(NotMigrated, match=r"triggers.0002_rules.*manage.py migrate"):
        require_migrations()


def test_migrations_of_a_newer_version_are_no_concern() -> None:
    APPLIED.create(app="triggers", name="9999_of_the_next_version")

    require_migrations()
