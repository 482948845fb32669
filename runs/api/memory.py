"""The long-term memory of agents over HTTP."""

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from agents.memory import KEY_LENGTH, MOST_FOUND, TEXT_LENGTH, searched
from agents.models import MemoryNote
from runs.actions.memory import create_note, delete_note, edit_note
from runs.api.body import Body
from runs.api.resource import NewestFirst, Query, Refusal, Resource, faults_at
from runs.api.shown import Shown


class NoteSerializer(Shown, serializers.ModelSerializer[MemoryNote]):
    class Meta:
        model = MemoryNote
        fields = ["id", "agent", "key", "text", "is_tainted", "revision", "run_id", "by", "created_at", "updated_at"]
        read_only_fields = fields


class MemoryQuery(Query):
    agent = serializers.CharField(required=False, help_text="name of an agent")
    search = serializers.CharField(
        required=False, help_text=f"words; the {MOST_FOUND} notes that fit best come first, on one page"
    )


class NewNoteBody(Body):
    agent = serializers.CharField(max_length=200)
    key = serializers.CharField(max_length=KEY_LENGTH)
    text = serializers.CharField(max_length=TEXT_LENGTH)


class NoteBody(Body):
    text = serializers.CharField(max_length=TEXT_LENGTH)
    trusted = serializers.BooleanField(default=True, help_text="false: it taints each run that reads it")
    revision = serializers.IntegerField(
        required=False, default=None, help_text="the edit is refused if the note was written after this revision"
    )


class MemoryResource(Resource):
    """The notes that agents keep for their later runs."""

    required_permissions = {
        "list": "agents.view_memorynote",
        "retrieve": "agents.view_memorynote",
        "create": "agents.change_memorynote",
        "partial_update": "agents.change_memorynote",
        "destroy": "agents.change_memorynote",
    }
    serializer_class = NoteSerializer
    pagination_class = NewestFirst
    queryset = MemoryNote.objects.all()

    def get_queryset(self) -> QuerySet[MemoryNote]:
        return MemoryNote.objects.defer("words")

    @extend_schema(parameters=[MemoryQuery])
    def list(self, request: Request) -> Response:
        """Notes, newest first; with `search`, those with any of these words, or words that begin so."""
        asked, notes = MemoryQuery.read(request), self.get_queryset()
        if "agent" in asked:
            notes = notes.filter(agent=asked["agent"])
        if "search" in asked:
            best = NoteSerializer(searched(notes, asked["search"])[:MOST_FOUND], many=True).data
            return Response({"results": best, "next": None, "previous": None})
        page = self.paginate_queryset(notes) or []
        return self.get_paginated_response(NoteSerializer(page, many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        """One note."""
        return Response(NoteSerializer(self.get_object()).data)

    @extend_schema(request=NewNoteBody, responses={201: NoteSerializer, 409: Refusal})
    def create(self, request: Request) -> Response:
        """Give an agent a note."""
        body = NewNoteBody.read(request)
        with faults_at("text"):
            made = create_note(body["agent"], body["key"], body["text"], by=str(request.user))
        return Response(NoteSerializer(made).data, status=201)

    @extend_schema(request=NoteBody, responses={200: NoteSerializer, 409: Refusal})
    def partial_update(self, request: Request, pk: str) -> Response:
        """Write the text of a note."""
        body, note, by = NoteBody.read(request), self.get_object(), str(request.user)
        with faults_at("text"):
            edited = edit_note(note.pk, body["text"], trusted=body["trusted"], by=by, revision=body["revision"])
        return Response(NoteSerializer(edited).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a note."""
        delete_note(self.get_object().pk, by=str(request.user))
        return Response(status=204)
