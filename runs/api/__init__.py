"""The HTTP API of runs, approvals and queues.

`resource` is the base of every resource (permissions, errors, pages); `body` and `strict_json` read requests; `runs`,
`approvals`, `approval_links`, `notifications` and `queues` are the resources, and `runs_json` has their serializers; `routes`
has their addresses.
"""
