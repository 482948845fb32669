"""When a schedule fires: pure, in its zone, from the parsed fields of its crontab and never by adding fixed offsets.

Nominal times are instants (aware UTC). Where a zone's clocks change, a crontab follows the rule of Debian's cron: one whose
hour field is `*` or `*/n` follows elapsed time, so it fires in both passes of a repeated hour and makes nothing of a gap;
one that names hours fires once, the first time where its local time comes twice, and at the end of the gap where it does not
exist. Debian's cron also takes `*` in the minute field for elapsed time (man 8 cron, Notes); here the hour field decides
alone, so that `*/15 2 * * *` is not lost in spring.
Day of month and day of week must both match, as Celery has always had it; see `Cron.parse` for what `cron` does.

In reading order: `rule` (any of them), `crontab`, `interval`, `once`, `sun`; `rows` (as django-celery-beat stores them), `words`.
"""
