"""Django's admin looks here for what to register; the console's pages are one noun a file."""

from config.console import accounts as accounts
from config.console import alarms as alarms
from config.console import approvals as approvals
from config.console import audit as audit
from config.console import backfills as backfills
from config.console import events as events
from config.console import exclusion_calendars as exclusion_calendars
from config.console import notifications as notifications
from config.console import periodic_tasks as periodic_tasks
from config.console import queues as queues
from config.console import runs as runs
from config.console import schedules as schedules
from config.console import sources as sources
from config.console import tokens as tokens
from config.console import triggers as triggers
from config.console import workers as workers
