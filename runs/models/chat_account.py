from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


# The users of a project beside this one may be deleted by its own processes, which do not know these tables: constraints of a migration
# delete their rows with them.
class ChatAccount(models.Model):
    """An account at a chat by which a user decides approvals there. It counts for deliveries of one source, and only those that the
    secret proves by which it was linked: who may enter another secret must not be able to speak for others."""

    source_id = models.UUIDField()
    secret_id = models.BigIntegerField()
    workspace = models.TextField(default="", help_text="of Slack: the id of the account's team")
    account = models.TextField(help_text="its id at the provider")
    name = models.TextField(default="", help_text="as it names itself: shown, and never decided by")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_constraint=False)
    linked_at = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["source_id", "workspace", "account"], name="chat_account_once"),
            models.CheckConstraint(name="chat_account_has_id", condition=~Q(account="")),
        ]

    def __str__(self) -> str:
        return f"{self.workspace}/{self.account}" if self.workspace else self.account


class ChatLinkCode(models.Model):
    """A code that a user has made and sends from their account at a chat, once. A user has one at a time."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="+", db_constraint=False
    )
    code_sha256 = models.TextField(unique=True)
    source_id = models.UUIDField()
    expires_at = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"code of {self.user_id}"
