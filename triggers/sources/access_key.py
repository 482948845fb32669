"""The access key of AWS and of what speaks its protocols, as the secret of a source."""

from triggers.sources.settings import InvalidSettings

LABEL = "Access key (id:secret)"


def clean_access_key(secret: str) -> str:
    """As ID:SECRET. Raises InvalidSettings."""
    key_id, key = parts_of(secret.strip())
    if not (key_id and key):
        raise InvalidSettings({"secret": "must be the id and the secret of an access key, as ID:SECRET"})
    return secret.strip()


def parts_of(secret: str) -> tuple[str, str]:
    """Its id and its secret; both empty if there is none."""
    key_id, _, key = secret.partition(":")
    return key_id, key
