"""How far ahead a record's time may be, at any time scale."""

from __future__ import annotations

import pytest

from schemas.topics import MAX_TIMESTAMP_AHEAD_MS, TOPICS, at_time_scale

AHEAD = "message.timestamp.after.max.ms"


def test_in_real_time_every_topic_takes_stamps_half_a_minute_ahead() -> None:
    assert at_time_scale(TOPICS, 1.0) == TOPICS
    assert {topic.config()[AHEAD] for topic in TOPICS} == {str(MAX_TIMESTAMP_AHEAD_MS)} == {"30000"}


@pytest.mark.parametrize(("time_scale", "ahead_ms"), [(6.0, "5000"), (7.0, "4286"), (1_000.0, "30")])
def test_a_faster_event_time_takes_them_less_far_ahead_and_changes_nothing_else(
    time_scale: float, ahead_ms: str
) -> None:
    for topic, faster in zip(TOPICS, at_time_scale(TOPICS, time_scale), strict=True):
        assert faster.name == topic.name
        assert faster.config() == {**topic.config(), AHEAD: ahead_ms}
