"""Budgets and prices of models: viewers see them, operators change caps."""

from typing import Any

from django.apps import apps as installed
from django.contrib.auth.management import create_permissions
from django.db import migrations

SEEN = ("view_budget", "view_modelprice")
CHANGED = ("raise_budget", "change_modelprice")


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
    dependencies = [("config", "0002_login_failures"), ("runs", "0006_budgets")]
    operations = [migrations.RunPython(extend_roles, migrations.RunPython.noop)]
