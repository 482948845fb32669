"""The groups of `0001_roles` see checklists, and operators edit them."""

from typing import Any

from django.apps import apps as installed
from django.contrib.auth.management import create_permissions
from django.db import migrations

GRANTED = {
    "viewer": ("view_checklist",),
    "operator": ("view_checklist", "change_checklist"),
    "approver": ("view_checklist",),
}


def grant(apps: Any, schema_editor: Any) -> None:
    database = schema_editor.connection.alias
    create_permissions(installed.get_app_config("agents"), verbosity=0, using=database, apps=apps)
    known = apps.get_model("auth", "Permission").objects.using(database).filter(content_type__app_label="agents")
    for group in apps.get_model("auth", "Group").objects.using(database).filter(name__in=GRANTED):
        group.permissions.add(*known.filter(codename__in=GRANTED[group.name]))


class Migration(migrations.Migration):
    dependencies = [("config", "0002_login_failures"), ("agents", "0002_checklists")]
    operations = [migrations.RunPython(grant, migrations.RunPython.noop)]
