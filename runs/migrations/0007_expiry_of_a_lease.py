"""A process notes until when it may be unseen. The rows of earlier versions have no such time: the time allowed for their kind counts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0006_fence")]

    operations = [
        migrations.AddField(
            "worker",
            "expires_at",
            models.DateTimeField(null=True, help_text="it counts as dead if it is not seen again until then"),
        )
    ]
