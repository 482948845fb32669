"""The ways in. Each ends in `triggers.accept`.

`webhooks` and `cloudevents` come over HTTP (`http` is what both share), `manual`, `signal`, `emitted` and `wakeup` are Wakeful's own;
`secrets` encrypts and rotates the secrets of sources.
"""
