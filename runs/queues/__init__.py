"""The queues of ready runs.

`state` counts their runs, `pause` pauses, resumes and limits them, `doorbell` signals ready runs to workers, `courier`
sends to the broker in threads of its own, so that dispatch never waits for it; `quick_ring` signals new runs from the
dispatcher's own thread; `entrance` is for dispatch; `unknown_tasks` keeps messages of the broker that no worker
knows; `names` are their names in URLs.
"""
