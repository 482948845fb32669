"""Google: Gmail, Calendar, Drive, and mail by IMAP and SMTP."""

from runs.connections.provider import Provider, Scope

PREFIX = "https://www.googleapis.com/auth/"

PROVIDER = Provider(
    name="google",
    label="Google",
    authorize_url="https://accounts.google.com/o/oauth2/v2/auth",
    token_url="https://oauth2.googleapis.com/token",  # noqa: S106  (an address)
    revoke_url="https://oauth2.googleapis.com/revoke",
    issuer="https://accounts.google.com",
    hosts=("*.googleapis.com", "imap.gmail.com:993", "smtp.gmail.com:465", "smtp.gmail.com:587"),
    scopes=(
        Scope(name=f"{PREFIX}gmail.readonly", words="Read your mail"),
        Scope(name=f"{PREFIX}gmail.compose", words="Write drafts, and send them"),
        Scope(
            name=f"{PREFIX}gmail.modify", words="Read, label and move your mail to the bin, write drafts and send them"
        ),
        Scope(name="https://mail.google.com/", words="All of your mail, also by IMAP and SMTP, with deletion for good"),
        Scope(name=f"{PREFIX}calendar.readonly", words="Read your calendars"),
        Scope(name=f"{PREFIX}calendar.events", words="Read and change the events of your calendars"),
        Scope(name=f"{PREFIX}drive.readonly", words="Read your files in Drive"),
    ),
    # Without both, Google gives a refresh token at the first consent only, or none.
    parameters={"access_type": "offline", "prompt": "consent"},
    setup=(
        "Open console.cloud.google.com, and choose or create a project.",
        "*APIs & Services* → *Library*: enable what you need, such as the Gmail API and the Google Calendar API.",
        "*Google Auth Platform* → *Branding*: fill in the name. *Audience*: *Internal* for your Workspace; otherwise *External*, then "
        "*Publish app*: while it is in testing, Google ends each refresh token after seven days.",
        "*Clients* → *Create client*, type *Web application*. Under *Authorized redirect URIs* add {redirect_uri}",
        "Copy the client ID and the client secret into this form.",
    ),
    access_page="https://myaccount.google.com/connections",
    docs_url="https://developers.google.com/identity/protocols/oauth2/web-server",
)
