"""`manage.py up`: the whole stack on one machine.

`supervisor` starts and restarts `children`, among them the `embedded` servers; `demo`, `home` and `access` make the first visit easy.
"""
