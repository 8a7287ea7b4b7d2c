"""One size of bench `scale`: the job's operators in this process, what an event cost them, and what their stores hold.

`python -m stoker.bench.scale_play SIZE` plays one size, given and answered as JSON, in a process of its own, so that
the resident bytes are its alone.
"""

from __future__ import annotations

import hashlib
import random
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import msgspec

from analytics.policy import BudgetPolicy, PolicyBook, PolicyDefaults
from analytics.prefix_config import PrefixConfig
from connectors.encoders.fake import FakeEncoder
from jobs.interpreter import settle_in
from jobs.settings import JobSettings, ScopeSettings, WarmupSettings
from schemas import ReplicaSample, RequestEvent, Segment, encode
from stoker.local_job import LocalJob

START_MS = 1_790_000_040_000
SEGMENTS = 2
"""Of each prompt, its own: what prompts share would differ with the number of tenants."""
STRETCHES = 5
REPLICAS = ("r0", "r1")
HOT_KEYS = 200
"""Asked for again and again, by two of ten requests. Two of ten are for what was asked for once, `AGAIN` keys before;
six are for the next key of all."""
AGAIN = 500
UNBOUND = 1e6
RICH = BudgetPolicy(
    prefill_share=1.0,
    prefill_tokens_per_s=UNBOUND,
    embeddings_per_s=UNBOUND,
    embeds_per_s=UNBOUND,
    embeds_burst=UNBOUND,
)
"""No scope waits for its share: one that has all would wait otherwise than one that has a hundred thousandth."""


class Size(msgspec.Struct, frozen=True):
    """What is played.

    Attributes:
        tenants: each a scope of its own.
        keys: queries in all, each with a prompt and a user of its own; every tenant has as many.
        events: requests that are measured; as many go before.
        window_ms: of the demand operators. span_ms: in which `events` come.
    """

    tenants: int
    keys: int
    events: int
    window_ms: int
    span_ms: int = 300_000


class Played(msgspec.Struct, frozen=True):
    """What it came to.

    Attributes:
        event_us: processor time of the operators an event, slides and ticks included, the median of five stretches.
        state_bytes: keys and values of all stores. by_operator: the same for each.
        resident_bytes: by how much the process grew.
        keys: distinct queries that were asked for.
        commands: that were issued.
    """

    event_us: float
    state_bytes: int
    by_operator: dict[str, int]
    resident_bytes: int
    keys: int
    commands: int

    @property
    def bytes_per_key(self) -> float:
        """State of a distinct query, its prompt and its user."""
        return self.state_bytes / self.keys


class _Settings(JobSettings):
    """Settings under which no bound of a scope holds one tenant back from what many do."""

    def prefixes(self) -> PrefixConfig:
        most = 10_000_000
        return replace(super().prefixes(), max_nodes=most, max_candidates=100_000, max_path_segments=1_000_000)


def play(size: Size) -> Played:
    """Plays one size: a span to fill the windows, and another one that is measured."""
    settings = _Settings(
        scopes=ScopeSettings(unknown="own"),
        warmup=WarmupSettings(window_ms=size.window_ms),
    )
    job = LocalJob(settings, PolicyBook(PolicyDefaults(budget=RICH)), FakeEncoder())
    before = resident_bytes()
    requests = _Requests(size)
    commands = 0
    spent_s: list[float] = []
    for stretch in range(2 * STRETCHES):
        spent = 0.0
        for records in requests.until((stretch + 1) * size.span_ms // STRETCHES):
            began = time.process_time()
            for record, at_ms in records:
                job.on_record(record, at_ms)
            spent += time.process_time() - began
            commands += len(job.topics.commands)
            for topic in (job.topics.commands, job.topics.insights, job.topics.dead_letters):
                topic.clear()
        spent_s.append(spent)
    by_operator = job.state_bytes()
    return Played(
        event_us=statistics.median(spent_s[STRETCHES:]) * STRETCHES / size.events * 1e6,
        state_bytes=sum(by_operator.values()),
        by_operator=by_operator,
        resident_bytes=resident_bytes() - before,
        keys=requests.asked,
        commands=commands,
    )


class _Requests:
    """Events in the order of time, evenly spaced, each for any of the keys; and a sample of each replica a second."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._random = random.Random(1)
        self._made = 0
        self._next_sample_ms = 0
        self._keys: set[int] = set()

    @property
    def asked(self) -> int:
        """Distinct queries so far."""
        return len(self._keys)

    def until(self, end_ms: int) -> Iterator[list[tuple[bytes, int]]]:
        """Records before a time since the beginning, in batches of a second."""
        size = self._size
        while self._made * size.span_ms // size.events < end_ms:
            second = self._next_sample_ms + 1_000
            at_ms = START_MS + self._next_sample_ms
            batch = [(_sample(replica, at_ms), at_ms) for replica in REPLICAS]
            while (since_ms := self._made * size.span_ms // size.events) < second:
                batch.append((self._event(START_MS + since_ms), START_MS + since_ms))
            self._next_sample_ms = second
            yield batch

    def _event(self, at_ms: int) -> bytes:
        key = self._key()
        self._keys.add(key)
        tenant, number = f"tenant-{key % self._size.tenants:06d}", self._made
        self._made += 1
        prompt = hashlib.sha256(f"prompt {key}".encode()).hexdigest()
        return encode(
            RequestEvent(
                event_id=f"event-{number}",
                request_id=f"request-{number}",
                phase="started",
                occurred_at_ms=at_ms,
                tenant=tenant,
                user=f"user-{key}",
                pool="gpu",
                model="llama-3.3-70b-instruct",
                api="chat",
                query=f"what is the answer to question {key:06d}",
                segments=tuple(
                    Segment(hash=prompt[32 * part : 32 * part + 32], tokens=512, role="user")
                    for part in range(SEGMENTS)
                ),
                input_tokens=512 * SEGMENTS,
                stream=True,
                provider="vllm",
            )
        )

    def _key(self) -> int:
        turn, size = self._made % 10, self._size
        if turn < 2:
            return int(self._random.random() * min(HOT_KEYS, size.keys))
        newest = self._made // 10 * 6 + turn - 4
        return (newest if turn >= 4 else newest - AGAIN) % size.keys


def _sample(replica: str, at_ms: int) -> bytes:
    return encode(
        ReplicaSample(replica=replica, pool="gpu", incarnation="1", sampled_at_ms=at_ms, state="ready", block_tokens=16)
    )


def resident_bytes() -> int:
    """Of this process, now where the system tells, else at most so far."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    settle_in()
    sys.stdout.buffer.write(msgspec.json.encode(play(msgspec.json.decode(sys.argv[1], type=Size))))
