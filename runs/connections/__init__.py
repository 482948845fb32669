"""Accounts at providers of OAuth 2 that agents and sources act for.

`provider` describes a provider, `providers` has one file of each, and `catalog` finds them. `edit` creates, changes and removes
connections; `consent` sends a person to the provider and takes what they bring back; `lease` gives the access token and renews it, by
one process at a time; `ending` tests and revokes, and `revocation` has the provider revoke, too. `sealed` is the only place where tokens
are encrypted and read, `tokens` makes columns of them, and `protocol` is what is said to a provider.
"""

REVOCATION = "revocation"  # the outbox topic
