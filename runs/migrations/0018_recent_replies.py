from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("runs", "0017_log_of_a_run")]

    operations = [
        migrations.AddIndex(
            "delivery",
            models.Index(fields=["thread", "created_at"], name="delivery_recent_of_thread", condition=~Q(thread="")),
        ),
    ]
