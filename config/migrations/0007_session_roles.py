"""The groups of `0001_roles` see sessions and memory, and operators edit them."""

from typing import Any

from django.apps import apps as installed
from django.contrib.auth.management import create_permissions
from django.db import migrations

SEE = ("view_session", "view_memorynote")
GRANTED = {"viewer": SEE, "operator": (*SEE, "change_session", "change_memorynote"), "approver": SEE}


def grant(apps: Any, schema_editor: Any) -> None:
    database = schema_editor.connection.alias
    create_permissions(installed.get_app_config("agents"), verbosity=0, using=database, apps=apps)
    known = apps.get_model("auth", "Permission").objects.using(database).filter(content_type__app_label="agents")
    for group in apps.get_model("auth", "Group").objects.using(database).filter(name__in=GRANTED):
        group.permissions.add(*known.filter(codename__in=GRANTED[group.name]))


class Migration(migrations.Migration):
    dependencies = [("config", "0006_incident_roles"), ("agents", "0003_sessions_and_memory")]
    operations = [migrations.RunPython(grant, migrations.RunPython.noop)]
