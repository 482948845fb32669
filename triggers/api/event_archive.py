"""Exports and imports of events over the API, in pieces: each request is short, and an interrupted transfer goes on with the next."""

from django.http import HttpResponse
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from runs.api.body import read_body
from runs.api.resource import Query
from runs.api.shown import Shown
from runs.models.audit import record_about
from triggers.api.event_search import EventQuery, search_of
from triggers.events.order import Horizon
from triggers.models import Source
from triggers.sources.archive.export import export, last_of
from triggers.sources.archive.load import load_all

NDJSON = "application/x-ndjson"
PIECE_BYTES = 8 * 2**20  # after which a piece ends; at least one event
MOST = 10_000  # events of a piece


class ExportQuery(EventQuery):
    after = serializers.IntegerField(
        required=False,
        default=0,
        min_value=0,
        max_value=2**63 - 1,
        help_text="events after the one with this wakefulseq",
    )
    raw = serializers.BooleanField(
        required=False, default=False, help_text="also bodies as received, beside their JSON"
    )
    limit = serializers.IntegerField(
        required=False, default=MOST, min_value=1, help_text=f"most events of a piece, at most {MOST:,}"
    )


class ImportQuery(Query):
    source = serializers.CharField(required=False, default="", help_text="slug of the source of lines that name none")  # type: ignore[assignment]  # a field, by its metaclass


class RefusedLine(Shown):
    line = serializers.IntegerField(help_text="its number in this piece, from 1")
    detail = serializers.CharField()


class ImportedSerializer(Shown):
    imported = serializers.IntegerField()
    known = serializers.IntegerField(help_text="left as they are")
    without_payload = serializers.IntegerField(help_text="of those imported")
    refused = serializers.IntegerField(help_text="lines")
    reasons = RefusedLine(many=True, help_text="of the first refused lines")


def export_piece(request: Request) -> HttpResponse:
    given = ExportQuery.read(request)
    search = search_of(request)
    horizon, goal = Horizon(), last_of(search)
    most = min(given["limit"], MOST)
    texts: list[bytes] = []
    size, last, has_more = 0, 0, False
    for exported in export(search, after=given["after"], raw=given["raw"], horizon=horizon):
        if texts and (len(texts) >= most or size + len(exported.text) > PIECE_BYTES):
            has_more = True
            break
        texts.append(exported.text)
        size, last = size + len(exported.text), exported.seq
    else:
        # A transaction is open that may have recorded an event before newer ones, which are left to the next piece.
        last = max(given["after"], search.above, horizon.reached)
        has_more = last < goal
    record_about(str(request.user), "export", "event", "*", events=len(texts), conditions=sorted(search.dump()))
    answer = HttpResponse(b"".join(texts), content_type=NDJSON)
    if has_more:
        following = replace_query_param(request.build_absolute_uri(), "after", str(last))
        answer["Link"] = f'<{following}>; rel="next"'
    return answer


def import_piece(request: Request) -> Response:
    source = ImportQuery.read(request)["source"]
    try:
        loaded = load_all(read_body(request._request), source=source, by=str(request.user))
    except Source.DoesNotExist:
        raise ValidationError({"source": ["There is no source with this slug."]}) from None
    reasons = [{"line": number, "detail": reason} for number, reason in loaded.reasons]
    return Response(
        {
            "imported": loaded.imported,
            "known": loaded.known,
            "without_payload": loaded.without_payload,
            "refused": loaded.refused,
            "reasons": reasons,
        }
    )
