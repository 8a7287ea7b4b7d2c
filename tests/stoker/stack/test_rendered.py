"""What a stack would make and tell, looked at without starting it."""

from __future__ import annotations

from pathlib import Path

from schemas.topics import TOPICS
from stoker.demo.config import DemoConfig
from stoker.demo.profile import profile_of
from stoker.demo.session import Session
from stoker.stack.stack import Stack, StackConfig

AHEAD = "message.timestamp.after.max.ms"


def test_a_stack_in_real_time_has_the_topics_of_the_plan(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    assert stack.topics == TOPICS
    assert stack.environment()["STOKER_TIME_SCALE"] == "1.0"


def test_topics_of_a_faster_stack_take_stamps_less_far_ahead(tmp_path: Path) -> None:
    stack = Stack(tmp_path, StackConfig.on_free_ports(time_scale=10.0))
    assert {topic.config()[AHEAD] for topic in stack.topics} == {"3000"}
    assert stack.environment()["STOKER_TIME_SCALE"] == "10.0"


def test_the_demo_s_topics_keep_time_with_its_job(tmp_path: Path) -> None:
    config = DemoConfig(profile_of(None, seed=0), root=tmp_path)
    stack = Session(config).stack
    assert config.time_scale > 1
    assert {float(topic.config()[AHEAD]) for topic in stack.topics} == {30_000 / config.time_scale}
