"""Every dose reaches the topic as what it is meant to be."""

from __future__ import annotations

from schemas import PoisonMessage, RequestEvent, decode, encode
from stoker.demo.disturbance import Disturbed, Doses
from stoker.replay.sink import EventSink


class Topic:
    """A producer that keeps what it gets."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, int | None]] = []

    def send(self, _topic: str, value: bytes, *, key: bytes, timestamp_ms: int) -> None:
        assert key
        self.sent.append((value, timestamp_ms))


EVENT = RequestEvent(
    event_id="e", request_id="r", phase="finished", occurred_at_ms=100_000, completed_at_ms=100_900, tenant="shop",
    pool="main", model="tiny", session="s", ttft_ms=3.0,
)  # fmt: skip


def sent(doses: Doses) -> list[tuple[bytes, int | None]]:
    topic = Topic()
    sink = EventSink(topic, "llm.requests")  # type: ignore[arg-type]
    Disturbed(sink, doses, seed=1)(EVENT)
    assert sink.records == len(topic.sent)
    return topic.sent


def test_without_doses_the_event_alone_is_sent() -> None:
    assert sent(Doses(0, 0, 0, 0)) == [(encode(EVENT), 100_900)]


def test_a_repetition_is_the_same_record() -> None:
    assert sent(Doses(1, 0, 0, 0)) == [(encode(EVENT), 100_900)] * 2


def test_a_broken_record_cannot_be_read() -> None:
    _, (broken, _) = sent(Doses(0, 1, 0, 0))
    try:
        decode(broken, RequestEvent)
    except PoisonMessage:
        return
    raise AssertionError("it could be read")


def test_a_probe_is_another_request_and_no_demand() -> None:
    _, (record, at_ms) = sent(Doses(0, 0, 1, 0))
    probe = decode(record, RequestEvent)
    assert (probe.origin, probe.phase, at_ms) == ("probe", "started", 100_000)
    assert probe.request_id != EVENT.request_id


def test_a_late_record_is_another_request_with_its_own_old_time() -> None:
    _, (record, at_ms) = sent(Doses(0, 0, 0, 1, late_ms=25_000))
    late = decode(record, RequestEvent)
    assert (late.origin, late.occurred_at_ms, at_ms) == ("user", 75_000, 75_000)
    assert late.request_id != EVENT.request_id
