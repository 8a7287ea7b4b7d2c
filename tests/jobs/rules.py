"""Policies that a test tells the running job, and takes back again: all tests of the folder share it."""

from __future__ import annotations

import uuid

from schemas import Policy, encode
from schemas.policy import Section
from schemas.topics import POLICY
from tests.jobs.deployment import Deployment, now_ms


class Rules:
    """The policies of a test, which end with it."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._told: set[tuple[str, Section]] = set()
        self._version = 0

    def tell(self, scope: str, section: Section, **body: float | bool) -> None:
        """Says what holds from now on."""
        self._told.add((scope, section))
        self._send(scope, section, body)

    def drop(self, scope: str, section: Section) -> None:
        """Takes it back."""
        self._told.discard((scope, section))
        self._send(scope, section, None)

    def drop_all(self) -> None:
        """Takes back whatever was told."""
        for scope, section in sorted(self._told):
            self.drop(scope, section)

    def heard(self, scope: str, section: Section) -> None:
        """Waits until the job has read what was told of a section.

        Nothing acknowledges a policy: a bad one behind it, in the same partition, tells that it was read.
        """
        deployment, known = self._deployment, set(self._deployment.outputs.dead)
        deployment.send(f"no policy {uuid.uuid4().hex}".encode(), POLICY, key=self._key(scope, section))
        deployment.flush()
        topic = deployment.settings.kafka.topic(POLICY)

        def dead() -> bool:
            letters = deployment.outputs.dead.items()
            return any(name not in known and letter.source_topic == topic for name, letter in letters)

        deployment.wait(dead, "the dead letter of the bad policy")
        deployment.settle()

    def _send(self, scope: str, section: Section, body: dict[str, float | bool] | None) -> None:
        self._version = max(now_ms(), self._version + 1)
        policy = Policy(
            scope=scope, section=section, writer="triggers", version=self._version, at_ms=now_ms(),
            body=body or {}, deleted=body is None,
        )  # fmt: skip
        self._deployment.send(encode(policy), POLICY, key=self._key(scope, section))
        self._deployment.flush()

    @staticmethod
    def _key(scope: str, section: Section) -> bytes:
        return f"{scope}/{section}/triggers".encode()
