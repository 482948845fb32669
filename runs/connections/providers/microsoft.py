"""Microsoft 365: mail and calendar by Graph, and mail by IMAP and SMTP."""

from runs.connections.provider import CLIENT, CODE, Provider, Scope, Setting

GRAPH = "https://graph.microsoft.com/"

PROVIDER = Provider(
    name="microsoft",
    label="Microsoft 365",
    authorize_url="https://login.microsoftonline.com/{tenant}/oauth2/v2.0/authorize",
    token_url="https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token",  # noqa: S106  (an address)
    hosts=("graph.microsoft.com", "outlook.office365.com:993", "smtp.office365.com:587"),
    scopes=(
        Scope(name=f"{GRAPH}Mail.Read", words="Read your mail"),
        Scope(name=f"{GRAPH}Mail.ReadWrite", words="Read, move, label and delete your mail, and write drafts"),
        Scope(name=f"{GRAPH}Mail.Send", words="Send mail in your name"),
        Scope(name=f"{GRAPH}Calendars.Read", words="Read your calendars"),
        Scope(name=f"{GRAPH}Calendars.ReadWrite", words="Read and change your calendars"),
        Scope(name=f"{GRAPH}Files.Read", words="Read your files in OneDrive"),
        Scope(
            name="https://outlook.office.com/IMAP.AccessAsUser.All",
            words="All of your mail by IMAP (a connection of its own: Microsoft gives no token for this and Graph together)",
        ),
        Scope(
            name="https://outlook.office.com/SMTP.Send",
            words="Send mail by SMTP (with IMAP or alone: Microsoft gives no token for this and Graph together)",
        ),
    ),
    always=("offline_access",),
    of_application=(f"{GRAPH}.default",),
    grants=(CODE, CLIENT),
    settings=(
        Setting(
            name="tenant",
            label="Tenant",
            help_text="The directory (tenant) ID, or “common” for any account. The grant of an application needs the ID.",
            default="common",
        ),
    ),
    setup=(
        "Open entra.microsoft.com → *App registrations* → *New registration*.",
        "*Redirect URI*: platform *Web*, and the address {redirect_uri}",
        "*Certificates & secrets* → *New client secret*. Copy its *Value*, not its ID: it is shown once. Note when it ends.",
        "*API permissions* → *Add a permission* → *Microsoft Graph*: add the permissions that you choose below, as *Delegated* ones; "
        "as *Application* ones, with *Grant admin consent*, if no person logs in.",
        "Copy *Application (client) ID* and *Directory (tenant) ID* from the *Overview* into this form.",
    ),
    access_page="https://myapps.microsoft.com",
    docs_url="https://learn.microsoft.com/entra/identity-platform/v2-oauth2-auth-code-flow",
)
