"""The groups viewer, operator and approver may see incidents; operators close them. A group that was deleted stays so."""

from typing import Any

from django.apps import apps as installed
from django.contrib.auth.management import create_permissions
from django.db import migrations

SEEN = ("view_incident",)
DONE = ("close_incident",)


def give(apps: Any, schema_editor: Any) -> None:
    database = schema_editor.connection.alias
    create_permissions(installed.get_app_config("runs"), verbosity=0, using=database, apps=apps)
    known = apps.get_model("auth", "Permission").objects.using(database).filter(content_type__app_label="runs")
    groups = apps.get_model("auth", "Group").objects.using(database)
    for name, codenames in (("viewer", SEEN), ("operator", SEEN + DONE), ("approver", SEEN)):
        for group in groups.filter(name=name):
            group.permissions.add(*known.filter(codename__in=codenames))


class Migration(migrations.Migration):
    dependencies = [("config", "0005_recipient_roles"), ("runs", "0006_incidents")]
    operations = [migrations.RunPython(give, migrations.RunPython.noop)]
