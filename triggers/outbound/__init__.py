"""Events leave as signed webhooks, to subscriptions. In reading order:

- `match`: which subscriptions want an event; part of dispatch, because an event and its deliveries commit together
- `enter`: write the deliveries of a batch
- `deliver`: send what is due and record what became of it; `postman` is the dispatcher's thread for that
- `body`: an event as a CloudEvent; `schedule`: when a failed attempt is repeated
- `edit`, `secrets`, `redeliver`, `test_event`: what operators do

Threads, breakers and requests are those of notifications (`runs.network`).
"""
