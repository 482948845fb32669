"""Connections to other hosts.

`broker` is the only way to Celery's broker, with a circuit breaker; `outgoing` sends to addresses that the operator has set.
"""
