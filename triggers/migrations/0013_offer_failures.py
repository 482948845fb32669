from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [("triggers", "0012_rateuse_written_at")]

    operations = [
        migrations.AddField("offer", "failures", models.IntegerField(db_default=0, help_text="in a row")),
        migrations.AddField("offer", "error", models.TextField(db_default="", help_text="of the last failure")),
        migrations.AlterField(
            "offer", "moved_at", models.DateTimeField(db_default=Now(), help_text="one that failed is put off until then")
        ),
        migrations.AlterField(
            "offer",
            "until",
            models.BigIntegerField(
                null=True,
                help_text="id of the last decision to do; null: until none is left. "
                "Of what is dropped, only while the trigger is paused",
            ),
        ),
    ]
