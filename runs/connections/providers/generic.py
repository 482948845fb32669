"""Any provider of OAuth 2 or OpenID Connect: its addresses are entered, or found by its issuer."""

from runs.connections.provider import CLIENT, CODE, Provider, Setting

PROVIDER = Provider(
    name="generic",
    label="Other (OAuth 2 or OpenID Connect)",
    grants=(CODE, CLIENT),
    auth_method="client_secret_basic",
    settings=(
        Setting(
            name="issuer",
            label="Issuer",
            help_text="Such as https://login.example.com. The addresses below that are empty are read from its metadata.",
        ),
        Setting(name="authorize_url", label="Authorization endpoint", help_text="Empty: from the issuer's metadata."),
        Setting(name="token_url", label="Token endpoint", help_text="Empty: from the issuer's metadata."),
        Setting(
            name="revoke_url", label="Revocation endpoint (RFC 7009)", help_text="Empty: from the metadata, or none."
        ),
        Setting(
            name="hosts",
            label="Hosts",
            help_text="The hosts that the access token may be sent to, such as api.example.com or *.example.org, separated by spaces.",
            is_list=True,
        ),
    ),
    setup=(
        "Register a confidential client (a web application) at the provider.",
        "Its redirect URI is {redirect_uri}",
        "Copy the client ID and the client secret into this form.",
        "Enter the hosts of the API that agents are to call: the token is sent to no other host.",
    ),
)
