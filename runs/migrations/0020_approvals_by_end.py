from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("runs", "0019_acknowledge_and_mute_incidents")]

    operations = [
        migrations.AddIndex(
            "wait",
            models.Index(
                fields=["due_at", "id"], name="wait_approval_by_end", condition=Q(status="open", kind="approval")
            ),
        ),
    ]
