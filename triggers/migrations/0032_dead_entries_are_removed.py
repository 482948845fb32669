"""As in runs.0024: entries of dispatched events stand in front of those that wait, where each look of a dispatcher steps over them."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("triggers", "0031_triggers_of_an_agent")]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE triggers_event SET (vacuum_index_cleanup = on)",
            "ALTER TABLE triggers_event RESET (vacuum_index_cleanup)",
        )
    ]
