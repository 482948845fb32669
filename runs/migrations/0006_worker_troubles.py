from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0005_outbox_by_topic")]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="troubles",
            field=models.JSONField(help_text="what this process cannot do now: name → since, error", null=True),
        ),
    ]
