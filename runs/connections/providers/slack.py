"""Slack: a bot of a workspace."""

from runs.connections.provider import Provider, Scope

PROVIDER = Provider(
    name="slack",
    label="Slack",
    authorize_url="https://slack.com/oauth/v2/authorize",
    token_url="https://slack.com/api/oauth.v2.access",  # noqa: S106  (an address)
    revoke_url="https://slack.com/api/auth.revoke",
    hosts=("slack.com", "*.slack.com"),
    scopes=(
        Scope(name="chat:write", words="Post messages in channels that the bot is in"),
        Scope(name="channels:read", words="See the public channels"),
        Scope(name="channels:history", words="Read the public channels that the bot is in"),
        Scope(name="groups:history", words="Read the private channels that the bot is in"),
        Scope(name="im:history", words="Read direct messages to the bot"),
        Scope(name="app_mentions:read", words="Read messages that mention the bot"),
        Scope(name="users:read", words="See the names of the people in the workspace"),
        Scope(name="reactions:write", words="Add reactions to messages"),
    ),
    separator=",",
    has_pkce=False,  # only for apps without a secret; an app that has chosen that cannot go back
    setup=(
        "Open api.slack.com/apps → *Create New App* → *From scratch*, and choose the workspace.",
        "*OAuth & Permissions* → *Redirect URLs*: add {redirect_uri}, which Slack accepts by https only.",
        "*Scopes* → *Bot Token Scopes*: add those that you choose below.",
        "With *Token Rotation* on, each token lasts twelve hours and Wakeful renews it; this cannot be switched off again.",
        "*Basic Information*: copy the client ID and the client secret into this form.",
    ),
    access_page="https://slack.com/apps/manage",
    docs_url="https://docs.slack.dev/authentication/installing-with-oauth",
)
