"""The access key of AWS and of what speaks its protocols, as the secret of a source."""

import re

from triggers.sources.runner import SourceError
from triggers.sources.settings import InvalidSettings

LABEL = "Access key (id:secret)"
# Of the services themselves: others may have hosts below amazonaws.com, such as a load balancer.
AMAZON = re.compile(
    r"(?:[\w-]+\.)*(?:s3|sqs)(?:-fips)?(?:\.dualstack)?\.[a-z0-9-]+(?:\.vpce)?\.(?:amazonaws\.com(?:\.cn)?|api\.aws)"
    r"|(?:[a-z0-9-]+\.)?(?:queue|s3)\.amazonaws\.com"
)


def clean_access_key(secret: str) -> str:
    """As ID:SECRET. Raises InvalidSettings."""
    key_id, key = parts_of(secret.strip())
    if not (key_id and key):
        raise InvalidSettings({"secret": "must be the id and the secret of an access key, as ID:SECRET"})
    return secret.strip()


def keep_ours_at_amazon(secret: str, host: str) -> None:
    """Without an access key of the source's own, the process signs with its own credentials: for no host of an editor's choice.
    Raises SourceError."""
    if not secret and not AMAZON.fullmatch(host):
        raise SourceError(
            f"It has no access key, and the credentials of the sources process are not for {host}.",
            remedy="Enter an access key of that server as the source's secret.",
        )


def parts_of(secret: str) -> tuple[str, str]:
    """Its id and its secret; both empty if there is none."""
    key_id, _, key = secret.partition(":")
    return key_id, key
