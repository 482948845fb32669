"""GitHub: a person's account, by a GitHub App or an OAuth app."""

from runs.connections.provider import Provider, Scope

PROVIDER = Provider(
    name="github",
    label="GitHub",
    authorize_url="https://github.com/login/oauth/authorize",
    token_url="https://github.com/login/oauth/access_token",  # noqa: S106  (an address)
    hosts=("api.github.com", "uploads.github.com"),
    scopes=(
        Scope(
            name="repo", words="Read and change all your repositories, also private ones, with issues and pull requests"
        ),
        Scope(name="public_repo", words="Read and change your public repositories, with issues and pull requests"),
        Scope(name="read:org", words="See your organizations and teams"),
        Scope(name="notifications", words="Read your notifications, and mark them as read"),
        Scope(name="workflow", words="Change workflows of GitHub Actions"),
        Scope(name="gist", words="Write gists"),
    ),
    setup=(
        "For access to chosen repositories only, make a GitHub App: github.com → *Settings* → *Developer settings* → *GitHub Apps* → "
        "*New GitHub App*. Its permissions are chosen there: choose no scope below.",
        "Or an OAuth app, whose scopes are chosen below: *Developer settings* → *OAuth Apps* → *New OAuth App*.",
        "*Callback URL*: {redirect_uri}",
        "Of a GitHub App, leave *Expire user authorization tokens* on: Wakeful renews them. Tokens of an OAuth app do not expire.",
        "*Generate a new client secret*. Copy the client ID and the secret into this form.",
    ),
    access_page="https://github.com/settings/applications",
    docs_url="https://docs.github.com/apps/oauth-apps/building-oauth-apps/authorizing-oauth-apps",
)
