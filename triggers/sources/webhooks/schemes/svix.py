from triggers.sources.kind import Group, register
from triggers.sources.webhooks.schemes.standard_webhooks import StandardWebhooks


@register
class Svix(StandardWebhooks):
    """Standard Webhooks under the names of Svix' headers, which senders on its smaller plans cannot change."""

    name = "svix"
    label = "Svix"
    help_text = (
        "For senders that use Svix, such as Clerk and Resend: svix-id, svix-timestamp and svix-signature headers."
    )
    group = Group.ANY_SENDER
    setup = (
        "At the sender, add a webhook endpoint with the address {url}.",
        "Choose the events that agents need.",
        "Copy the signing secret of the endpoint, which begins with whsec_, and enter it here.",
    )
    docs_url = "https://docs.svix.com/receiving/verifying-payloads/how"
    is_secret_given = True
    prefix = "svix"
