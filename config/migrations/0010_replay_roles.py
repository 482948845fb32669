"""The groups of `0001_roles` see replays. Operators may start them: they may replay events. Exports and imports are left to
administrators: an export holds all payloads, and an import may speak for any source."""

from typing import Any

from django.apps import apps as installed
from django.contrib.auth.management import create_permissions
from django.db import migrations

GROUPS = ("viewer", "operator", "approver")


def grant(apps: Any, schema_editor: Any) -> None:
    database = schema_editor.connection.alias
    create_permissions(installed.get_app_config("triggers"), verbosity=0, using=database, apps=apps)
    known = apps.get_model("auth", "Permission").objects.using(database)
    for group in apps.get_model("auth", "Group").objects.using(database).filter(name__in=GROUPS):
        group.permissions.add(*known.filter(content_type__app_label="triggers", codename="view_replay"))


class Migration(migrations.Migration):
    dependencies = [("config", "0009_subscription_roles"), ("triggers", "0008_archive")]
    operations = [migrations.RunPython(grant, migrations.RunPython.noop)]
