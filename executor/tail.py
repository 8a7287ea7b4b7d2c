"""The tail: every executor hears all commands and outcomes, whichever partitions its group gave it.

Three things depend on it: a Cancel lies in one partition and its commands may be worked on by another executor; the
holder of a replica's lease watches prefixes that others warmed; an outcome that another executor published just before
it died must not be published again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from analytics.knobs import knobs
from analytics.policy import PlanPolicy
from connectors.kafka.base import Consumer, Record
from executor.history import seek_since
from schemas import PoisonMessage, StackFault, TransientFault, WarmupCommand, WarmupOutcome, decode

log = logging.getLogger(__name__)

POLL_MS = 100
SPARE_MS = 60_000
BACK_MS = SPARE_MS + max(int(knobs(PlanPolicy)[name].high or 0) for name in ("prefix_life_ms", "embedding_life_ms"))
"""How far back it begins: longer than policy lets a command live, so that a Cancel is known before its commands come
again."""
PAUSE_AFTER_FAULT_S = 0.5

Heard = WarmupCommand | WarmupOutcome


class Tail:
    """Reads warmup.commands and warmup.outcomes outside any group, on a thread.

    Args:
        make_consumer: a consumer without a group.
        topics: full names of both.
        hand_over: takes what was heard, in batches; called on the thread, must not block.
        now_ms: wall clock.
    """

    def __init__(
        self,
        make_consumer: Callable[[], Consumer],
        topics: tuple[str, str],
        hand_over: Callable[[list[Heard]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._make_consumer = make_consumer
        self._topics = topics
        self._hand_over = hand_over
        self._now_ms = now_ms
        self._leaving = threading.Event()
        self.caught_up = threading.Event()
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)

    def start(self) -> None:
        """Begins to listen."""
        self._thread.start()

    def leave(self, timeout_s: float) -> None:
        """Stops listening."""
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Whether it listens."""
        return self._thread.is_alive() and self.failure is None

    def _run(self) -> None:
        while not self._leaving.is_set():
            try:
                with self._make_consumer() as consumer:
                    self._listen(consumer)
            except (TransientFault, StackFault) as fault:
                log.warning("tail: %s; beginning again", fault)
                self._leaving.wait(PAUSE_AFTER_FAULT_S)
            except Exception as error:
                self.failure = error
                log.exception("tail ended")
                return

    def _listen(self, consumer: Consumer) -> None:
        partitions = [place for topic in self._topics for place in consumer.partitions(topic)]
        consumer.assign(partitions)
        ends = seek_since(consumer, partitions, self._now_ms() - BACK_MS)
        while not self._leaving.is_set():
            heard = [message for record in consumer.poll(POLL_MS) if (message := self._heard(record)) is not None]
            if heard:
                self._hand_over(heard)
            if not self.caught_up.is_set() and all(consumer.position(p) >= ends[p] for p in partitions):
                self.caught_up.set()

    def _heard(self, record: Record) -> Heard | None:
        if record.value is None:
            return None
        try:
            if record.topic == self._topics[0]:
                return decode(record.value, WarmupCommand)
            return decode(record.value, WarmupOutcome)
        except PoisonMessage:
            # The intake that owns the partition makes a dead letter of it.
            return None
        except Exception:
            log.exception("the tail cannot read %s/%s/%s", record.topic, record.partition, record.offset)
            return None
