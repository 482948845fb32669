"""GitHub: an installation of a GitHub App, with the permissions that the app has on chosen repositories. No person logs in."""

from runs.connections.provider import CLIENT, Provider, Scope, Setting

PROVIDER = Provider(
    name="github_app",
    label="GitHub App (installation)",
    token_url="https://api.github.com/app/installations/{installation}/access_tokens",  # noqa: S106  (an address)
    hosts=("api.github.com", "uploads.github.com"),
    signs=True,
    grants=(CLIENT,),
    id_label="App ID",
    secret_label="Private key",  # noqa: S106  (a label)
    scopes=(
        Scope(name="metadata:read", words="See the repositories, and who works on them"),
        Scope(name="contents:read", words="Read the code, its commits and its branches"),
        Scope(name="contents:write", words="Read and change the code, its commits and its branches"),
        Scope(name="issues:read", words="Read issues and their comments"),
        Scope(name="issues:write", words="Read, write, label and close issues, and comment on them"),
        Scope(name="pull_requests:read", words="Read pull requests and their comments"),
        Scope(name="pull_requests:write", words="Read, write and merge pull requests, and comment on them"),
        Scope(name="checks:read", words="See whether checks pass"),
        Scope(name="checks:write", words="See and report checks"),
        Scope(name="statuses:read", words="See the statuses of commits"),
        Scope(name="actions:read", words="See workflows, their runs and their logs"),
        Scope(name="actions:write", words="See, start and stop workflows"),
        Scope(name="workflows:write", words="Change the files of workflows"),
    ),
    settings=(
        Setting(
            name="installation",
            label="Installation ID",
            help_text="The number at the end of the address of the installation: github.com/settings/installations/…",
            is_required=True,
            is_number=True,
        ),
    ),
    setup=(
        "Open github.com → *Settings* → *Developer settings* → *GitHub Apps* → *New GitHub App* (of an organization: in its settings).",
        "Switch *Webhook* → *Active* off, unless a source is to receive its events. It needs no callback URL.",
        "*Permissions* → *Repository permissions*: give it as little as will do. To watch builds: *Checks*, *Commit statuses*, "
        "*Contents* and *Metadata*, to read. To answer issues: *Issues*, to read and write.",
        "*Generate a private key*: paste the whole downloaded file into this form. Copy the *App ID* from the same page.",
        "*Install App*: choose the account and the repositories. The address of the page that follows ends with the installation ID.",
        "Save this form, and press *Get a token*.",
    ),
    access_page="https://github.com/settings/installations",
    docs_url="https://docs.github.com/apps/creating-github-apps/authenticating-with-a-github-app/authenticating-as-a-github-app-installation",
)
