"""Connections to other hosts.

`broker` is the only way to Celery's broker, with a circuit breaker; `outgoing` sends to addresses that the operator has set.
`posting` does the same and reports how far a request came; `mail_server` reads the address of one. `site` is our own address.
`fetching` reads an address, at public addresses only. `sending` has many messages under way at once, and `breakers` leaves hosts
alone that are away. `signing` signs what is sent.
"""
