"""Sources of events. Each ends in `triggers.accept`.

`kind` is one kind of source, with its `settings`; every kind is one file in a package of this one, found by name.
`webhooks` and `cloudevents` receive events over HTTP (`http` is what both share); `manual`, `signal`, `emitted_events` and `wakeup` are
Wakeful's own; `secrets` encrypts and rotates the secrets of sources.
"""
