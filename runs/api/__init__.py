"""The HTTP API of runs, approvals and queues.

`resource` is what every resource shares (permissions, errors, pages), `body` and `strict_json` read requests; `runs`, `approvals`,
`approval_links` and `queues` are the resources, `runs_json` how a run is written.
"""
