"""The policy feed: warmup.policy is read to its end before anything else, and followed from then on (step 1)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from connectors.kafka.base import Consumer, Record
from schemas import PoisonMessage, Policy, StackFault, TransientFault, decode

log = logging.getLogger(__name__)

POLL_MS = 100
PAUSE_AFTER_FAULT_S = 0.5


class PolicyFeed:
    """Reads Policies and hands them over; the book itself is only touched by the event loop.

    Args:
        make_consumer: a consumer without a group.
        topic: full name of warmup.policy.
        hand_over: takes what the thread read; called on the thread, must not block.
    """

    def __init__(
        self, make_consumer: Callable[[], Consumer], topic: str, hand_over: Callable[[list[Policy]], None]
    ) -> None:
        self._make_consumer = make_consumer
        self._topic = topic
        self._hand_over = hand_over
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="policy-feed", daemon=True)
        self.failure: Exception | None = None

    def read_to_end(self) -> list[Policy]:
        """All policies that there are now. Blocking.

        Raises:
            TransientFault, StackFault, BrokenConfiguration: as `Consumer.read_to_end`.
        """
        with self._make_consumer() as consumer:
            return _policies(list(consumer.read_to_end(self._topic)))

    def start(self) -> None:
        """Follows the topic. It begins at the earliest record again: a book takes only greater versions, and nothing
        that came between reading and following may be missed."""
        self._thread.start()

    def leave(self, timeout_s: float) -> None:
        """Stops following."""
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Whether a freeze would be heard."""
        return self._thread.is_alive() and self.failure is None

    def _run(self) -> None:
        while not self._leaving.is_set():
            try:
                with self._make_consumer() as consumer:
                    consumer.assign(consumer.partitions(self._topic))
                    while not self._leaving.is_set():
                        policies = _policies(consumer.poll(POLL_MS))
                        if policies:
                            self._hand_over(policies)
            except (TransientFault, StackFault) as fault:
                log.warning("policy feed: %s; beginning again", fault)
                self._leaving.wait(PAUSE_AFTER_FAULT_S)
            except Exception as error:
                self.failure = error
                log.exception("policy feed ended")
                return


def _policies(records: list[Record]) -> list[Policy]:
    found = []
    for record in records:
        if record.value is None:
            continue
        try:
            found.append(decode(record.value, Policy))
        except PoisonMessage as poison:
            log.warning("policy at %s/%s/%s not read: %s", record.topic, record.partition, record.offset, poison)
    return found
