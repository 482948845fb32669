from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("runs", "0017_log_of_a_run")]

    operations = [
        migrations.RemoveIndex("delivery", "delivery_of_thread"),
        migrations.AddIndex(
            "delivery",
            models.Index(
                fields=["thread", "notification"],
                name="delivery_turn_of_thread",
                condition=Q(status__in=["pending", "sending"]) & ~Q(thread=""),
            ),
        ),
        migrations.AddIndex(
            "delivery",
            models.Index(fields=["thread", "created_at"], name="delivery_recent_of_thread", condition=~Q(thread="")),
        ),
    ]
