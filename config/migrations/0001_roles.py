"""The groups viewer, operator and approver. Made once: what people change of them afterwards stays as it is."""

from typing import Any

from django.apps import apps as installed
from django.contrib.auth.management import create_permissions
from django.db import migrations

LOOKED_AT = ("agents", "runs", "triggers", "django_celery_beat", "django_celery_results")
HIDDEN = ("view_secret",)
# Not among them: editing recipients decides where links go that approve without a login; editing subscriptions, where data goes;
# prompt agents spend money and use tools; an export holds all payloads, and an import may speak for any source.
OPERATED = {
    "runs": (
        "requeue_run", "cancel_run", "fork_run", "signal_run", "resolve_run",
        "pause_queue", "stop_agent", "raise_budget", "change_modelprice", "close_incident",
        "resolve_delivery", "acknowledge_delivery", "test_recipient", "silence_recipient",
    ),
    "triggers": ("fire_trigger", "pause_trigger", "replay_event", "backfill_schedule", "redeliver_subscription"),
    "agents": ("change_checklist", "change_session", "change_memorynote"),
}


def make_roles(apps: Any, schema_editor: Any) -> None:
    database = schema_editor.connection.alias
    for label in LOOKED_AT:
        # They come after all migrations otherwise, too late for these groups.
        create_permissions(installed.get_app_config(label), verbosity=0, using=database, apps=apps)
    Permission = apps.get_model("auth", "Permission")
    Group = apps.get_model("auth", "Group")
    known = Permission.objects.using(database)
    seen = known.filter(content_type__app_label__in=LOOKED_AT, codename__startswith="view_").exclude(codename__in=HIDDEN)
    done = [
        permission
        for label, codenames in OPERATED.items()
        for permission in known.filter(content_type__app_label=label, codename__in=codenames)
    ]
    decides = known.filter(content_type__app_label="runs", codename="decide_approval")
    groups = {"viewer": seen, "operator": [*seen, *done], "approver": [*seen, *decides]}
    for name, permissions in groups.items():
        group, is_new = Group.objects.using(database).get_or_create(name=name)
        if is_new:
            group.permissions.set(permissions)


class Migration(migrations.Migration):
    initial = True
    dependencies = [
        ("agents", "0001_initial"),
        ("runs", "0002_rules"),
        ("triggers", "0002_rules"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
        ("django_celery_results", "0014_alter_taskresult_status"),
    ]
    # The groups stay when it is undone: people are in them.
    operations = [migrations.RunPython(make_roles, migrations.RunPython.noop)]
