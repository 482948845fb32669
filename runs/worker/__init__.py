"""The processes of a Celery worker.

`parent` renews the lease and ends children that overrun, `rest` decides how often it renews, `child` prepares a child and ends it
with its parent, `consumer` reconnects to the broker within a second of its return.
"""
