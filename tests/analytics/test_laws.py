"""What holds for every decision object, whatever it decides. A new one without a life in `subjects` fails here.

Every object is seeded, lives in event time, and answers calls that its operator may make. An example that fails prints
its seed; the object is its parameter.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analytics import load_subjects, planner_subjects, subjects
from tests.analytics.lives import Event, Life, Subject, contents, reached, size_of, stateful

SUBJECTS: tuple[Subject, ...] = (
    *(subjects.session, subjects.prompts, subjects.demand, subjects.tree, subjects.clusters, subjects.focus),
    *(subjects.residency, subjects.prefetch, subjects.retention, subjects.host_tier, subjects.window),
    *(planner_subjects.engine, planner_subjects.redis, load_subjects.forecast),
)
NO_DECISION: dict[str, str] = {}
"""Classes whose state survives and that need no life of their own, each with the reason."""

START_MS = 1_790_000_040_000
LATE_MS = 4_000
LONG_MS = 7_200_000
every = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.kind.__name__)
few = settings(max_examples=4, deadline=None, derandomize=True)
seeds = st.integers(0, 2**16)


def some(subject: Subject, seed: int, count: int = 50) -> list[Event]:
    return list(itertools.islice(subject.events(random.Random(seed), START_MS), count))


def lived(subject: Subject, events: list[Event], late_ms: int = 0) -> Life:
    """A whole life: all events, and all that time brings afterwards."""
    life = Life(subject, late_ms)
    for event in events:
        life.hear(event)
    life.pass_to(life.now_ms + 120_000)
    return life


def test_every_object_whose_state_survives_is_under_the_laws() -> None:
    held: set[type[Any]] = set()
    for subject in SUBJECTS:
        held |= reached(lived(subject, some(subject, 1)).object)[1]
    free = {name for name, kind in stateful().items() if not any(issubclass(each, kind) for each in held)}
    # What is left needs a Subject in tests/analytics/subjects.py, or a reason in NO_DECISION.
    assert free == NO_DECISION.keys()


@every
@few
@given(seed=seeds)
def test_a_crash_anywhere_changes_nothing(subject: Subject, seed: int) -> None:
    events, chance = some(subject, seed), random.Random(seed)
    whole, broken = Life(subject), Life(subject)
    for event in events:
        if chance.random() < 0.2:
            broken.die(chance)
        whole.hear(event)
        broken.hear(event)
        assert broken.said == whole.said
    for life in (whole, broken):
        life.pass_to(life.now_ms + 120_000)
        life.die(chance)  # some snapshots are in the order of arrival, which a rebirth forgets
    assert broken.said == whole.said
    assert broken.fired == whole.fired
    assert contents(broken.left()) == contents(whole.left())


@every
@few
@given(seed=seeds)
def test_the_order_within_the_lateness_does_not_matter(subject: Subject, seed: int) -> None:
    if isinstance(subject.loose, str):
        return
    chance = random.Random(seed)
    events = list(itertools.islice((subject.unordered or subject.events)(random.Random(seed), START_MS), 50))
    one, other = Life(subject, LATE_MS), Life(subject, LATE_MS)
    while events:
        # What is told at about the same time: event time stands meanwhile.
        batch, events = events[: (size := chance.randint(1, 5))], events[size:]
        for life, order in ((one, batch), (other, chance.sample(batch, len(batch)))):
            life.pass_to(max(event.at_ms for event in batch) - LATE_MS)
            for event in order:
                life.tell(event)
    for life in (one, other):
        life.pass_to(life.now_ms + 120_000)
    assert subject.loose(other.said, contents(other.left())) == subject.loose(one.said, contents(one.left()))


@every
@few
@given(seed=seeds)
def test_time_that_goes_backwards_is_harmless(subject: Subject, seed: int) -> None:
    """Events of long ago are valid: they raise nothing, and time is not gone through again for them."""
    chance, life = random.Random(seed), Life(subject)
    stragglers = 0
    ancient = subject.events(random.Random(seed + 1), START_MS - LONG_MS)
    for event in some(subject, seed):
        life.hear(event)
        if chance.random() < 0.2:
            life.hear(next(ancient))
            stragglers += 1
        if subject.fire is not None and (due := life.object.next_timer_ms) is not None:
            before = contents(life.left())
            assert not subject.fire(life.object, due - 1)  # an alarm that is no longer wanted
            assert contents(life.left()) == before
            assert life.object.next_timer_ms == due
    life.pass_to(life.now_ms + 120_000)
    assert life.fired == sorted(set(life.fired))
    assert sum(at_ms < START_MS - LATE_MS for at_ms in life.fired) <= stragglers


@every
@mock.patch("analytics.prompt_planning.MAX_PROMPTS", 20)
@mock.patch("analytics.adapter_planning.USES_KEPT_MS", 60_000)
@mock.patch("analytics.adapter_versions.MAX_VERSIONS", 20)
def test_memory_is_bounded_whatever_is_named(subject: Subject) -> None:
    """Nothing is ever named twice: what is held follows from bounds and from the length of windows."""
    life, strangers = Life(subject), subject.strangers(random.Random(5), START_MS)

    def largest(count: int) -> list[int]:
        """The most that it holds, in its store and in itself, while it hears so many events."""
        sizes = []
        for number, event in enumerate(itertools.islice(strangers, count)):
            life.hear(event)
            if number % 50 == 0:
                sizes.append((size_of(contents(life.left())), reached(life.object)[0]))
        life.said.clear()
        return [max(column) for column in zip(*sizes, strict=True)]

    largest(250)
    early = largest(100)
    largest(500)
    late = largest(100)
    # What grows with the number of events would be more than twice as large by now.
    assert all(now <= 1.5 * before for before, now in zip(early, late, strict=True)), (early, late)


def digest() -> str:
    """All that all objects say, and leave."""
    found = hashlib.sha256()
    for subject in SUBJECTS:
        life = lived(subject, some(subject, 7))
        found.update(repr((subject.kind.__name__, life.said, contents(life.left()))).encode())
    return found.hexdigest()


def test_the_same_seed_gives_the_same_bytes_in_every_process() -> None:
    """Sets are read in another order in each process: nothing may depend on it."""
    other = subprocess.run(
        [sys.executable, "-c", "from tests.analytics.test_laws import digest; print(digest())"],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest()
