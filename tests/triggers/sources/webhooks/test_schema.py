"""The door stands in the API's description."""

from django.test import Client


def test_the_door_is_described_without_a_token(db: None) -> None:
    schema = Client().get("/api/schema/", headers={"Accept": "application/vnd.oai.openapi+json"}).json()

    door = schema["paths"]["/hooks/{slug}/"]
    assert set(door) == {"post"}
    assert not any(door["post"].get("security", []))
    assert door["post"]["requestBody"]["content"] == dict.fromkeys(
        ("application/octet-stream", "*/*"), {"schema": {"type": "string", "format": "binary"}}
    )
    assert {"202", "200", "401", "403", "404", "413", "503"} <= set(door["post"]["responses"])
