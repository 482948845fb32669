"""Processes and whether they are alive.

`alive` defines when a process counts as alive, `lease` renews its row, `rescue` recovers runs from processes that died, froze or
missed their lease, `timeline` notices a failover, `dead_man` pings the monitor that watches Wakeful itself.
`isolation` starts a process that has no secrets and is ended at its limits.
"""
