"""A look back that did not finish remembers how far it came, why it failed, and when to go on."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0002_rules")]

    operations = [
        migrations.AddField(
            "wait",
            "look_after",
            models.DateTimeField(null=True, help_text="when to look on, after a look that did not finish"),
        ),
        migrations.AddField(
            "wait",
            "looked_to",
            models.BigIntegerField(null=True, help_text="`seq` of the last event that an unfinished look has read"),
        ),
        migrations.AddField(
            "wait",
            "look_failures",
            models.PositiveSmallIntegerField(db_default=0, help_text="looks in a row that failed"),
        ),
        migrations.AddField(
            "wait",
            "look_error",
            models.TextField(db_default="", help_text="why the last of them failed"),
        ),
    ]
