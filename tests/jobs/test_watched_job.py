"""Patterns of sessions, managed prompts and adapters on real Kafka and Flink: from events to commands."""

from __future__ import annotations

import time
import uuid

import pytest

from schemas import Adapter, Announcement, Prefix, PromptRef, encode
from schemas.announcement import announcement_id
from schemas.canonical import adapter_key
from schemas.topics import ANNOUNCEMENTS
from tests.jobs.asking import ask, begins_with, conversation, waited
from tests.jobs.conftest import WATCHED
from tests.jobs.deployment import Deployment, now_ms
from tests.jobs.rules import Rules

pytestmark = [pytest.mark.service, pytest.mark.slow]


def test_like_prompts_of_a_session_warm_its_conversation_at_once(deployment: Deployment) -> None:
    deployment.at(1)
    deployment.heartbeat()
    session = uuid.uuid4().hex
    talk = [f"sys {session}"]

    def goes_on() -> None:
        talk.extend([f"u{len(talk)}", f"a{len(talk)}"])
        time.sleep(0.01)  # a session is in the order of event time: two prompts of one millisecond have none
        ask(deployment, "please try that once more", conversation(*talk[:-1]), session=session)

    for _ in range(3):
        goes_on()
    command = waited(deployment, "consecutive_prompts", begins_with(conversation(*talk[:2])), goes_on)
    assert (command.scope, command.pool) == (WATCHED, "gpu")
    assert command.lane == "fast"
    assert command.reason.evidence["state"] in (201, 202)
    assert command.reason.evidence["similarity"] == 1.0
    assert isinstance(command.target, Prefix)
    assert len(command.target.segments) >= 6  # the whole conversation up to its third prompt at least
    deployment.settle()


def test_a_managed_prompt_s_prefix_is_warmed_by_its_hotness(deployment: Deployment, rules: Rules) -> None:
    deployment.at(1)
    deployment.heartbeat()
    # What is asked for each second is hot by itself, and who sees that first has it commanded: here only prompts do.
    rules.tell(WATCHED, "plan", min_saved_ms=60_000.0)
    rules.heard(WATCHED, "plan")
    name = uuid.uuid4().hex

    def use() -> None:
        question = f"question {uuid.uuid4().hex}"
        ask(
            deployment,
            question,
            conversation(f"sys {name}", question),
            phase="finished",
            completed_at_ms=now_ms(),
            prompt=PromptRef(name, "1"),
            finish_reason="stop",
            status=200,
        )

    system = conversation(f"sys {name}")
    command = waited(deployment, "managed_prompt", begins_with(system), use)
    assert (command.scope, command.pool) == (WATCHED, "gpu")
    assert command.reason.evidence["hotness"] >= 1.5
    assert isinstance(command.target, Prefix)
    assert command.target.segments == system  # not a word of the user's
    deployment.settle()


def test_an_announced_adapter_in_demand_is_loaded_where_it_is_absent(deployment: Deployment) -> None:
    deployment.at(1)
    deployment.heartbeat()
    name, long_ago_ms = uuid.uuid4().hex, now_ms() - 3_600_000
    announcement = Announcement(
        announcement_id=announcement_id(WATCHED, "gpu", "adapter", name, "2", long_ago_ms),
        scope=WATCHED,
        pool="gpu",
        kind="adapter",
        name=name,
        version="2",
        announced_at_ms=now_ms(),
        at_ms=long_ago_ms,
        source=f"adapters/{name}",
        rank=8,
    )
    deployment.send(encode(announcement), ANNOUNCEMENTS, key=WATCHED.encode())
    deployment.flush()

    def ask_often() -> None:
        for index in range(8):
            ask(deployment, f"question {index} {name}", adapter=f"{name}@2")

    key = adapter_key(name, "2")
    command = waited(deployment, "adapter_rate", lambda command: command.target_key == key, ask_often)
    assert (command.scope, command.pool) == (WATCHED, "gpu")
    assert command.action == "load"
    assert command.target == Adapter(name=name, version="2", rank=8, source=f"adapters/{name}")
    assert command.replicas.names == ("r0",)
    deployment.settle()
