"""The queues of ready runs.

`state` counts them, `pause` stops and limits them, `doorbell` tells workers of ready runs, `courier` rings and hands over in threads
of its own, so that dispatch never waits for the broker; `names` lists them for forms.
"""
