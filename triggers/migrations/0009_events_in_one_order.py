"""All readers of events go by `seq`: the position of a replay. The indexes come apart (0011), as they are made while events are
accepted."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("triggers", "0008_no_notify_without_a_dispatcher")]

    operations = [
        migrations.AddField("replay", "passed", models.BigIntegerField(null=True, help_text="events up to this `seq` have been looked at; null: none")),
        migrations.AddField("replay", "until", models.BigIntegerField(null=True, help_text="the `seq` at which it ends; null: the newest one")),
        migrations.AlterField("replay", "position", models.UUIDField(help_text="of versions that went by ids")),
    ]
