from django.db import migrations, models


class Migration(migrations.Migration):
    """The index by time alone stays for one version: what runs beside this one looks by it."""

    dependencies = [("runs", "0004_claim_identity")]

    operations = [
        migrations.AddIndex(
            model_name="outboxmessage",
            index=models.Index(fields=["topic", "available_at", "id"], name="outbox_due"),
        ),
    ]
