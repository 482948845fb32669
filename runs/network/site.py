"""The address of this site."""

from django.conf import settings

LOCAL = {"127.0.0.1", "localhost", "[::1]", "testserver", "*"}


def site() -> str:
    """The address of this site, without a slash at the end: WAKEFUL_URL, or what the other settings say of it."""
    if settings.WAKEFUL_URL:
        return str(settings.WAKEFUL_URL).rstrip("/")
    public = [host for host in settings.ALLOWED_HOSTS if host not in LOCAL and not host.startswith(".")]
    if public:
        return f"{'https' if settings.WAKEFUL_HTTPS else 'http'}://{public[0]}"
    return f"http://127.0.0.1:{settings.WAKEFUL_PORT}"
