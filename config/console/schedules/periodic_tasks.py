"""The user's own periodic tasks and Celery's results, from their packages, in the console's style."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django_celery_beat.admin import PeriodicTaskAdmin as BasePeriodicTaskAdmin
from django_celery_beat.admin import PeriodicTaskForm
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from django_celery_results.models import GroupResult, TaskResult
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from config.console.parts.audit_entries import Audited, record_each
from config.console.parts.links import link, page
from config.console.parts.moments import moment
from config.console.parts.panel import CappedPaginator, Panel, column, time_column
from config.console.parts.sections import Facts, Section, Text
from triggers.models import Schedule
from triggers.schedules.preview import describe

for model in (PeriodicTask, CrontabSchedule, IntervalSchedule, ClockedSchedule, SolarSchedule, TaskResult, GroupResult):
    if admin.site.is_registered(model):
        admin.site.unregister(model)


class TaskSelect(UnfoldAdminSelectWidget, PeriodicTaskForm.base_fields["regtask"].widget.__class__):  # type: ignore[misc]
    """django-celery-beat's list of registered tasks, styled."""


class TaskForm(PeriodicTaskForm):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["regtask"].widget = TaskSelect()
        self.fields["task"].widget = UnfoldAdminTextInputWidget()


@admin.register(PeriodicTask)
class PeriodicTaskPanel(Audited, BasePeriodicTaskAdmin, ModelAdmin):  # type: ignore[misc]
    """Ordinary Celery tasks on a schedule. Those that wake agents are under Schedules."""

    form = TaskForm
    change_form_template = (
        None  # the package's template has an inline script, which the Content-Security-Policy refuses
    )
    date_hierarchy = None
    list_display = ("name", "enabled", "task", "rule", "last_run", "times")
    list_filter = ("enabled",)
    paginator = CappedPaginator
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[PeriodicTask]:
        tasks = super().get_queryset(request).filter(wakeful__trigger=None)
        return tasks.select_related("interval", "crontab", "solar", "clocked", "wakeful")  # type: ignore[no-any-return]

    @column("when")
    def rule(self, task: Any) -> str:
        return describe(task.wakeful)

    last_run = time_column("last run", "last_run_at")

    @column("its times")
    def times(self, task: Any) -> SafeString:
        return link(page("triggers_schedule", task.wakeful.pk), "fires and skips")

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, obj: Any = None, **kwargs: Any
    ) -> HttpResponse:
        context |= {"subtitle": obj.name} if obj else {}
        return super().render_change_form(request, context, *args, obj=obj, **kwargs)  # type: ignore[no-any-return]

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[Any, Any, set[str], Any]:
        # Deleting the task deletes its schedule row; that row cannot be deleted alone.
        shown, counted, forbidden, protected = super().get_deleted_objects(objs, request)
        return shown, counted, forbidden - {str(Schedule._meta.verbose_name)}, protected

    # The package's actions, each with its permission and an audit entry for each task.

    @admin.action(description="Enable", permissions=["change"])
    def enable_tasks(self, request: HttpRequest, queryset: QuerySet[PeriodicTask]) -> None:
        record_each(request, "enable", queryset)
        super().enable_tasks(request, queryset)

    @admin.action(description="Disable", permissions=["change"])
    def disable_tasks(self, request: HttpRequest, queryset: QuerySet[PeriodicTask]) -> None:
        record_each(request, "disable", queryset)
        super().disable_tasks(request, queryset)

    @admin.action(description="Enable what is disabled, disable what is enabled", permissions=["change"])
    def toggle_tasks(self, request: HttpRequest, queryset: QuerySet[PeriodicTask]) -> None:
        record_each(request, "toggle", queryset)
        super().toggle_tasks(request, queryset)

    @admin.action(description="Run now", permissions=["change"])
    def run_tasks(self, request: HttpRequest, queryset: QuerySet[PeriodicTask]) -> None:
        record_each(request, "run", queryset)
        super().run_tasks(request, queryset)


@admin.register(CrontabSchedule, IntervalSchedule, ClockedSchedule, SolarSchedule)
class RulePanel(Audited, ModelAdmin):  # type: ignore[misc]
    """Only reached from a periodic task's form."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return False


@admin.register(TaskResult)
class TaskResultPanel(Panel):
    """Results of ordinary Celery tasks."""

    list_display = ("task_name", "status_label", "worker", "created", "done")
    list_filter = ("status",)
    search_fields = ("task_id", "task_name")
    ordering = ("-id",)

    @column("status", label={"SUCCESS": "success", "FAILURE": "danger", "RETRY": "warning", "STARTED": "info"})
    def status_label(self, result: TaskResult) -> str:
        return str(result.status)

    created = time_column("created", "date_created")
    done = time_column("done", "date_done")

    def title_of(self, obj: Any) -> str:
        return f"{obj.task_name or obj.task_id}, {obj.status}"

    def sections(self, request: HttpRequest, obj: Any) -> list[Section]:
        facts = Facts(
            rows=[
                ("Task", obj.task_name),
                ("Id", obj.task_id),
                ("Status", obj.status),
                ("Worker", obj.worker),
                ("Created", moment(obj.date_created)),
                ("Done", moment(obj.date_done)),
            ]
        )
        sections: list[Section] = [facts, Text(title="Result", text=obj.result or "none")]
        return [*sections, Text(title="Traceback", text=obj.traceback)] if obj.traceback else sections
