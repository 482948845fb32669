"""Django's form fields with the widgets of the console."""

from typing import Any

from django import forms
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminExpandableTextareaWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminRadioSelectWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)


class BooleanField(forms.BooleanField):
    widget = UnfoldBooleanSwitchWidget


class CharField(forms.CharField):
    widget = UnfoldAdminTextInputWidget


class SlugField(forms.SlugField):
    widget = UnfoldAdminTextInputWidget


class UUIDField(forms.UUIDField):
    widget = UnfoldAdminTextInputWidget


class TextField(forms.CharField):
    """Text in a box of `rows` lines."""

    def __init__(self, *, rows: int, **options: Any) -> None:
        super().__init__(widget=UnfoldAdminTextareaWidget(attrs={"rows": rows}), **options)


class ExpandableField(forms.CharField):
    """Text in a box that grows with it."""

    widget = UnfoldAdminExpandableTextareaWidget


class IntegerField(forms.IntegerField):
    widget = UnfoldAdminIntegerFieldWidget


class DecimalField(forms.DecimalField):
    widget = UnfoldAdminDecimalFieldWidget


class FloatField(forms.FloatField):
    widget = UnfoldAdminDecimalFieldWidget


class ChoiceField(forms.ChoiceField):
    widget = UnfoldAdminSelectWidget


class RadioField(forms.ChoiceField):
    """A choice whose values are all visible."""

    widget = UnfoldAdminRadioSelectWidget


class MultipleChoiceField(forms.MultipleChoiceField):
    widget = UnfoldAdminCheckboxSelectMultipleWidget


class ModelChoiceField(forms.ModelChoiceField):  # type: ignore[type-arg]
    widget = UnfoldAdminSelectWidget


class ModelMultipleChoiceField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    widget = UnfoldAdminCheckboxSelectMultipleWidget
