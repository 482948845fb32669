from django.contrib import admin
from django.db.models import F
from django.http import HttpRequest

from agents.kernel.durations import in_words
from config.console.parts.moments import moment
from config.console.parts.panel import Panel, column, time_column
from config.console.parts.sections import Facts, Notice, Section
from runs.models import Alarm

SAID = "Text from the beginning of the alarm. Overview and Processes show the current state."


@admin.register(Alarm)
class AlarmPanel(Panel):
    """Present and past problems, with their beginning and end."""

    list_display = ("name", "state", "said", "began", "ended")
    list_filter = (("ended_at", admin.EmptyFieldListFilter), "severity")
    search_fields = ("name",)
    ordering = (F("ended_at").desc(nulls_first=True), "-began_at")

    @column("state", label={"bad": "danger", "warning": "warning", "over": "default"})
    def state(self, alarm: Alarm) -> str:
        return "over" if alarm.ended_at else alarm.severity

    @column("text at the beginning")
    def said(self, alarm: Alarm) -> str:
        return alarm.text

    began = time_column("began", "began_at")
    ended = time_column("over", "ended_at")

    def sections(self, request: HttpRequest, obj: Alarm) -> list[Section]:
        lasted = in_words(obj.ended_at - obj.began_at) if obj.ended_at else ""
        return [
            Notice(text=obj.text, level="info" if obj.ended_at else obj.severity, details=[obj.remedy, SAID]),
            Facts(
                rows=[
                    ("Name", obj.name),
                    ("Began", moment(obj.began_at)),
                    ("Over", obj.ended_at and moment(obj.ended_at)),
                    ("Lasted", lasted),
                ]
            ),
        ]
