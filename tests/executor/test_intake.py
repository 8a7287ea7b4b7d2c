"""Joining the group: what a consumer that is dealt nothing does about it."""

from __future__ import annotations

import threading
import time

from connectors.kafka.fake import MemoryBroker, MemoryConsumer, MemoryProducer
from executor.intake import Intake


class Forgotten(MemoryConsumer):
    """A member whose leader did not know the topic: it is in the group, with nothing, for good."""

    def subscribe(self, _topics, listener=None) -> None:
        listener.assigned(frozenset())

    def poll(self, *_):
        time.sleep(0.01)
        return []


def test_a_member_without_partitions_joins_anew(monkeypatch) -> None:
    monkeypatch.setattr("executor.intake.EMPTY_S", 0.2)
    monkeypatch.setattr("executor.intake.PAUSE_AFTER_FAULT_S", 0.01)
    broker = MemoryBroker()
    broker.add_topic("commands", 2)
    made: list[type] = []

    def consumer() -> MemoryConsumer:
        made.append(MemoryConsumer if made else Forgotten)
        return made[-1](broker, "group")

    delivered = threading.Event()
    intake = Intake("gpu", consumer, "commands", lambda _batch: delivered.set())
    intake.start()
    try:
        assert intake.joined.wait(10)
        MemoryProducer(broker).send("commands", b"{}")
        assert delivered.wait(20)
        assert made == [Forgotten, MemoryConsumer]
    finally:
        intake.leave(10)
