"""Access keys of AWS and compatible servers, as the secret of a source."""

import re

from triggers.sources.runner import SourceError
from triggers.sources.settings import InvalidSettings

LABEL = "Access key (id:secret)"
# Hosts of AWS services themselves: customers may have other hosts below amazonaws.com, such as a load balancer.
AMAZON = re.compile(
    r"(?:[\w-]+\.)*(?:s3|sqs)(?:-fips)?(?:\.dualstack)?\.[a-z0-9-]+(?:\.vpce)?\.(?:amazonaws\.com(?:\.cn)?|api\.aws)"
    r"|(?:[a-z0-9-]+\.)?(?:queue|s3)\.amazonaws\.com"
)


def clean_access_key(secret: str) -> str:
    """The access key as ID:SECRET. Raises InvalidSettings."""
    key_id, key = parts_of(secret.strip())
    if not (key_id and key):
        raise InvalidSettings({"secret": "must be the id and the secret of an access key, as ID:SECRET"})
    return secret.strip()


def keep_ours_at_amazon(secret: str, host: str) -> None:
    """Refuse hosts outside of AWS for a source without an access key: the process would sign with its own credentials
    for a host of the editor's choice. Raises SourceError.
    """
    if not secret and not AMAZON.fullmatch(host):
        raise SourceError(
            f"It has no access key, and the credentials of the sources process are not for {host}.",
            remedy="Enter an access key of that server as the source's secret.",
        )


def parts_of(secret: str) -> tuple[str, str]:
    """The id and the secret of the access key; both empty if there is none."""
    key_id, _, key = secret.partition(":")
    return key_id, key
