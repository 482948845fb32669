"""What leaves this host.

`broker` is the one door to Celery's broker, with a circuit breaker; `outgoing` sends to addresses that the operator has set.
"""
