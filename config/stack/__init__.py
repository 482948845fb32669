"""`manage.py up`: the whole stack on one machine.

`embedded` runs the servers and `supervisor` the other processes, both as `children`; `nursery` forks these from one that is `prepared`;
`home` keeps secrets and URLs, `access` creates the first login, `demo` loads the demo.
"""
