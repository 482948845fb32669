from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("triggers", "0011_schedule_paused")]

    operations = [
        migrations.AddField(
            "rateuse",
            "written_at",
            models.DateTimeField(
                null=True, help_text="by the database's clock, which may since have been set back"
            ),
        ),
    ]
