"""Stopped agents: viewers see them, operators stop and start them."""

from typing import Any

from django.apps import apps as installed
from django.contrib.auth.management import create_permissions
from django.db import migrations

SEEN = ("view_agentstop",)
CHANGED = ("stop_agent",)


def extend_roles(apps: Any, schema_editor: Any) -> None:
    database = schema_editor.connection.alias
    create_permissions(installed.get_app_config("runs"), verbosity=0, using=database, apps=apps)
    Permission = apps.get_model("auth", "Permission")
    Group = apps.get_model("auth", "Group")
    known = Permission.objects.using(database).filter(content_type__app_label="runs")
    for name, codenames in {"viewer": SEEN, "operator": (*SEEN, *CHANGED), "approver": SEEN}.items():
        for group in Group.objects.using(database).filter(name=name):
            group.permissions.add(*known.filter(codename__in=codenames))


class Migration(migrations.Migration):
    dependencies = [("config", "0003_budget_roles"), ("runs", "0008_stop")]
    operations = [migrations.RunPython(extend_roles, migrations.RunPython.noop)]
