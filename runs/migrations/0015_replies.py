from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("runs", "0014_starts_of_calendars")]

    operations = [
        migrations.AddField(
            "delivery",
            "place",
            models.JSONField(
                null=True, help_text="of a reply: where it goes, in place of a recipient (`runs.notifications.places`)"
            ),
        ),
        migrations.AddField(
            "delivery",
            "thread",
            models.TextField(default="", db_default="", help_text="replies of one thread are sent in their order"),
        ),
        migrations.AddIndex(
            "delivery",
            models.Index(
                fields=["thread", "id"],
                name="delivery_of_thread",
                condition=Q(status__in=["pending", "sending"]) & ~Q(thread=""),
            ),
        ),
    ]
