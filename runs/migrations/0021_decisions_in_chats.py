import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [("runs", "0020_approvals_by_end"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]

    operations = [
        migrations.AddField(
            "delivery",
            "receipt",
            models.JSONField(
                null=True, help_text="what the receiver calls the message, so that it can be changed later"
            ),
        ),
        migrations.CreateModel(
            "ChatAccount",
            [
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("source_id", models.UUIDField()),
                ("secret_id", models.BigIntegerField()),
                ("workspace", models.TextField(default="", help_text="of Slack: the id of the account's team")),
                ("account", models.TextField(help_text="its id at the provider")),
                ("name", models.TextField(default="", help_text="as it names itself: shown, and never decided by")),
                ("linked_at", models.DateTimeField(db_default=Now())),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=["source_id", "workspace", "account"], name="chat_account_once"),
                    models.CheckConstraint(condition=~Q(account=""), name="chat_account_has_id"),
                ],
            },
        ),
        migrations.CreateModel(
            "ChatLinkCode",
            [
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("code_sha256", models.TextField(unique=True)),
                ("source_id", models.UUIDField()),
                ("expires_at", models.DateTimeField()),
            ],
            options={"default_permissions": ()},
        ),
    ]
