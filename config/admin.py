"""Django's admin imports this module; importing a page of the console registers it."""

import config.console.access.accounts  # noqa: F401
import config.console.access.audit  # noqa: F401
import config.console.access.tokens  # noqa: F401
import config.console.events.page  # noqa: F401
import config.console.notifications.deliveries  # noqa: F401
import config.console.notifications.groups  # noqa: F401
import config.console.notifications.list  # noqa: F401
import config.console.notifications.recipients  # noqa: F401
import config.console.operations.agents  # noqa: F401
import config.console.operations.alarms  # noqa: F401
import config.console.operations.budgets  # noqa: F401
import config.console.operations.checklists  # noqa: F401
import config.console.operations.incidents  # noqa: F401
import config.console.operations.memory  # noqa: F401
import config.console.operations.queues  # noqa: F401
import config.console.operations.sessions  # noqa: F401
import config.console.operations.workers  # noqa: F401
import config.console.prompt_agents.page  # noqa: F401
import config.console.runs.approvals  # noqa: F401
import config.console.runs.list  # noqa: F401
import config.console.schedules.backfills.list  # noqa: F401
import config.console.schedules.calendars  # noqa: F401
import config.console.schedules.list  # noqa: F401
import config.console.schedules.periodic_tasks  # noqa: F401
import config.console.sources.page  # noqa: F401
import config.console.triggers.page  # noqa: F401
