"""The groups viewer, operator and approver see connections, as they see all else, unless people have taken from them what is alike."""

from typing import Any

from django.apps import apps as installed
from django.contrib.auth.management import create_permissions
from django.db import migrations

ROLES = ("viewer", "operator", "approver")


def show_connections(apps: Any, schema_editor: Any) -> None:
    database = schema_editor.connection.alias
    create_permissions(installed.get_app_config("runs"), verbosity=0, using=database, apps=apps)
    known = apps.get_model("auth", "Permission").objects.using(database).filter(content_type__app_label="runs")
    for group in apps.get_model("auth", "Group").objects.using(database).filter(name__in=ROLES):
        if group.permissions.filter(content_type__app_label="runs", codename="view_recipient").exists():
            group.permissions.add(known.get(codename="view_connection"))


class Migration(migrations.Migration):
    dependencies = [("config", "0002_login_failures"), ("runs", "0011_connections")]
    operations = [migrations.RunPython(show_connections, migrations.RunPython.noop)]
