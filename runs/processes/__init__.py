"""Which processes are alive.

`alive` says when a process counts as alive, `lease` renews it, `rescue` recovers runs from processes that died, froze or missed their
lease, `timeline` notices a failover, `dead_man` pings the monitor that watches Wakeful itself.
"""
