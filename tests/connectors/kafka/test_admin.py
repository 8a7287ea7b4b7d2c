"""What the admin asks of its client, without a broker."""

from __future__ import annotations

from typing import Any

from connectors.kafka import KafkaAdmin
from connectors.settings import KafkaSettings
from schemas.topics import POLICY, REQUESTS


class Client:
    """A broker that takes every topic, which can be used once it was waited for."""

    def __init__(self) -> None:
        self.waited_for: list[str] = []

    def list_topics(self) -> list[str]:
        return [POLICY.name]

    def create_topics(self, topics: dict[str, Any], raise_errors: bool) -> dict[str, Any]:
        assert not raise_errors
        return {"topics": [{"name": name, "error_code": 0, "error_message": None} for name in topics]}

    def wait_for_topics(self, names: list[str]) -> None:
        self.waited_for = names


def test_topics_that_were_made_were_not_waited_for() -> None:
    """The list of what to wait for had been emptied by making them: a check right after it found none of them."""
    admin = KafkaAdmin.__new__(KafkaAdmin)
    admin._settings, admin._client = KafkaSettings(), Client()
    assert admin.create((POLICY, REQUESTS)) == [REQUESTS.name]
    assert admin._client.waited_for == [REQUESTS.name]
