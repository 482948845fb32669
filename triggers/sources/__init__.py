"""Sources of events. Each ends in `triggers.accept`.

`webhooks` and `cloudevents` receive events over HTTP (`http` is what both share); `manual`, `signal`, `emitted` and `wakeup` are
Wakeful's own; `secrets` encrypts and rotates the secrets of sources.
"""
