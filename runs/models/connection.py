import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Connection(models.Model):
    """An account at a provider that agents and sources may act for, by OAuth 2. `runs.connections` writes these rows.

    Tokens and the client's secret are encrypted, and stand here alone. Each write of a token or of the state raises `revision`,
    and compares it. One process at a time asks the provider for a new token: the one whose `claim` it is, until `claimed_until`.
    """

    class State(models.TextChoices):
        NEW = "new"
        CONNECTED = "connected"
        EXPIRED = "expired"  # its token has expired, and nothing can renew it
        REFUSED = "refused"  # the provider refuses to renew it
        REVOKED = "revoked"  # here, by a person

    class Grant(models.TextChoices):
        CODE = "authorization_code", "A person's account: they log in at the provider and consent"
        CLIENT = "client_credentials", "The application itself: no person logs in"

    name = models.SlugField(max_length=100, unique=True, help_text='what agents and sources call it, such as "gmail"')
    provider = models.TextField(help_text="name of the provider's file in runs.connections.providers")
    grant = models.TextField(choices=Grant, default=Grant.CODE)
    owner = models.TextField(
        default="", blank=True, help_text="name of the user it belongs to; empty: the installation"
    )
    # The database deletes the row with the user, also where another program deletes them: another user of the same name is another person.
    owner_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.DO_NOTHING, null=True, db_constraint=False, related_name="+"
    )
    settings = models.JSONField(
        default=dict, help_text="addresses and hosts, where the provider's file leaves them open"
    )
    client_id = models.TextField()
    client_secret = models.BinaryField(null=True, help_text="encrypted; none: a public client")
    scopes = ArrayField(models.TextField(), default=list, blank=True, help_text="what it is to be allowed")
    granted = ArrayField(models.TextField(), default=list, blank=True, help_text="what the provider has allowed")
    state = models.TextField(choices=State, default=State.NEW)
    reason = models.TextField(default="", blank=True, help_text="why it is not connected, or what fails")
    access_token = models.BinaryField(null=True, help_text="encrypted")
    refresh_token = models.BinaryField(null=True, help_text="encrypted; none: the access token cannot be renewed by it")
    expires_at = models.DateTimeField(null=True, help_text="of the access token; empty: the provider does not say it")
    refresh_expires_at = models.DateTimeField(null=True, help_text="of the refresh token, where the provider says it")
    connected_at = models.DateTimeField(null=True)
    connected_by = models.TextField(default="", blank=True)
    refreshed_at = models.DateTimeField(null=True, help_text="when its access token was given")
    claim = models.UUIDField(null=True, help_text="of the process that asks the provider for a new token")
    claimed_until = models.DateTimeField(null=True)
    unanswered = models.PositiveIntegerField(
        default=0, help_text="requests with this refresh token whose answer was lost"
    )
    failures = models.PositiveIntegerField(default=0, help_text="tries in a row that gave no token")
    failing_since = models.DateTimeField(null=True)
    retry_at = models.DateTimeField(null=True, help_text="no try before")
    revision = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["name"]
        permissions = [
            ("connect_connection", "Can connect and revoke connections"),
            ("test_connection", "Can test connections"),
        ]
        constraints = [
            models.CheckConstraint(
                name="connection_state_known",
                condition=Q(state__in=["new", "connected", "expired", "refused", "revoked"]),
            ),
            models.CheckConstraint(
                name="connection_grant_known", condition=Q(grant__in=["authorization_code", "client_credentials"])
            ),
            models.CheckConstraint(
                name="connection_has_tokens_while_connected",
                condition=Q(state="connected", access_token__isnull=False, connected_at__isnull=False)
                | (~Q(state="connected") & Q(access_token=None, refresh_token=None, claim=None)),
            ),
            models.CheckConstraint(
                name="connection_ended_for_a_reason", condition=~Q(state__in=["expired", "refused"]) | ~Q(reason="")
            ),
            models.CheckConstraint(
                name="connection_of_installation_has_no_user", condition=~Q(owner="") | Q(owner_user=None)
            ),
            models.CheckConstraint(
                name="connection_claim_ends",
                condition=Q(claim=None, claimed_until=None) | Q(claim__isnull=False, claimed_until__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class PendingConsent(models.Model):
    """A person was sent to the provider, and has not come back. It is used once: coming back deletes it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    connection = models.ForeignKey(Connection, models.CASCADE, related_name="pending_consents")
    state_sha256 = models.TextField(unique=True, help_text="of the state that the provider hands back")
    session_sha256 = models.TextField(help_text="of what the person's session alone knows")
    by = models.TextField()
    verifier = models.BinaryField(help_text="the code verifier of PKCE, encrypted")
    redirect_uri = models.TextField()
    expires_at = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"consent to connection {self.connection_id}"
