"""The form that writes a filter for messages. What it writes is a filter like any other."""

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.core.exceptions import ValidationError
from django.urls import reverse
from unfold.widgets import UnfoldAdminSelectWidget

from config.console.parts import fields
from config.console.parts.html import format_html
from config.console.parts.links import link
from config.console.parts.pages import Group
from config.console.parts.sections import Notice, Section, Text
from triggers.matching.expressions.cel import ExpressionError, check_condition
from triggers.matching.expressions.message_patterns import (
    CHAT,
    SHAPES,
    InvalidPattern,
    Pattern,
    Shape,
    Where,
    expression,
    is_path,
)
from triggers.matching.trial import fault_of_regex
from triggers.models import Trigger

WORDS = ("keywords", "hashtags", "mentions", "channels", "threads", "senders")


def _path(label: str, initial: str) -> forms.CharField:
    return fields.CharField(required=False, initial=initial, label=label)


def _words(label: str, help_text: str) -> forms.CharField:
    return fields.ExpandableField(required=False, label=label, help_text=f"{help_text} One per line.")


class MessageFilterForm(forms.Form):
    """The messages that are wanted; each field narrows them."""

    kind = forms.ChoiceField(
        label="Messages",
        choices=[(shape.name, shape.label) for shape in SHAPES.values()],
        widget=UnfoldAdminSelectWidget(attrs={"x-model": "choice"}),
        help_text="Choose what the messages look like.",
    )
    text = _path("Text", CHAT.texts[0])
    sender = _path("Sender", CHAT.sender)
    channel = _path("Channel", CHAT.channel)
    thread = _path("Thread", CHAT.thread)

    keywords = _words("Keywords", "Words or phrases, in upper or lower case. The text has one of them.")
    hashtags = _words("Hashtags", "Such as <code>#urgent</code>. The text has one of them.")
    mentions = _words(
        "Mentions",
        "Ids of users in Slack, such as <code>U024BE7LH</code>; addresses of recipients in mail; else names.",
    )
    regex = fields.CharField(
        required=False,
        strip=False,
        max_length=1_000,
        label="Regular expression",
        help_text="Found anywhere in the text, such as <code>PR-\\d+</code>. In the syntax of RE2: without look-around and "
        "back-references, so that its time is linear.",
    )
    channels = _words("Channels", "Ids in Slack, such as <code>C024BE91L</code>; the id of a list in mail.")
    where = fields.ChoiceField(
        required=False,
        choices=[(where.value, where.value) for where in Where],
        label="Place",
        help_text="Choose whether replies in a thread count.",
    )
    threads = _words("Threads", "Ids of threads.")
    senders = _words("Senders", "Ids in Slack; addresses in mail, or <code>*@example.com</code> for a domain.")
    by_people = fields.BooleanField(
        required=False,
        initial=True,
        label="By people only",
        help_text="Leave out messages of bots in Slack; and lists, automatic answers and reports in mail.",
    )

    def clean_regex(self) -> str:
        text: str = self.cleaned_data["regex"]
        if text and (fault := fault_of_regex(text)):
            raise ValidationError(f"It is no regular expression of RE2: {fault}")
        return text

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        try:
            cleaned["filter"] = expression(self._shape(), self._pattern())
            if cleaned["filter"]:
                check_condition(cleaned["filter"])
        except InvalidPattern as error:
            for name, problem in error.errors.items():
                self.add_error(name if name in self.fields else None, problem)
        except ExpressionError as error:
            self.add_error(None, str(error))
        return cleaned

    def groups(self) -> list[Group]:
        paths = [self[name] for name in ("text", "sender", "channel", "thread")]
        return [
            Group(fields=[self["kind"]]),
            Group(
                title="Where its parts are",
                note="Paths below event.data, such as message.body. Empty: the messages have no such part.",
                fields=paths,
                when=[CHAT.name],
            ),
            Group(title="Text", fields=[self[name] for name in ("keywords", "hashtags", "mentions", "regex")]),
            Group(title="Place", fields=[self[name] for name in ("channels", "where", "threads")]),
            Group(title="Sender", fields=[self[name] for name in ("senders", "by_people")]),
        ]

    def _shape(self) -> Shape:
        shape = SHAPES[self.cleaned_data["kind"]]
        if shape is not CHAT:
            return shape
        paths = {name: self.cleaned_data[name].strip() for name in ("text", "sender", "channel", "thread")}
        wrong = {name: "is no path such as message.body" for name, path in paths.items() if path and not is_path(path)}
        if wrong or not paths["text"]:
            raise InvalidPattern(wrong or {"text": "is required"})
        return replace(shape, texts=(paths.pop("text"),), **paths)

    def _pattern(self) -> Pattern:
        cleaned = self.cleaned_data
        words = {name: [word.strip() for word in cleaned[name].splitlines() if word.strip()] for name in WORDS}
        return Pattern(
            regex=cleaned["regex"],
            where=Where(cleaned["where"] or Where.ANYWHERE),
            by_people=cleaned["by_people"],
            **words,
        )


def written(trigger: Trigger, text: str) -> list[Section]:
    """The filter, and the way to the form that saves it."""
    if not text:
        return [Notice(level="warning", text="Every message matches: there is nothing to write.")]
    edit = f"{reverse('admin:triggers_trigger_edit', args=[trigger.pk])}?{urlencode({'filter': text})}"
    return [
        Notice(
            level="good",
            text="The filter is written. Nothing is saved yet.",
            details=[format_html("{}, and save it there.", link(edit, "Edit the trigger with this filter"))],
        ),
        Text(title="Filter", text=text),
    ]
