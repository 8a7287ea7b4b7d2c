"""Sessions' patterns and managed prompts in a GPU pool's plan."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.envelopes import Root, Tag, seal
from analytics.patterns import fnv1a32
from analytics.prompt_usage import PromptUse
from analytics.turns import SessionPattern
from schemas import Announcement, Pattern, Segment, WarmupCommand, encode
from schemas.announcement import announcement_id
from tests.analytics.test_planning import (
    ROOT,
    T0,
    TICK,
    Drive,
    book,
    candidate,
    hot,
    name,
    outcome,
    residency,
    sample,
)

SUBJECT = "5" * 32


def hashes(*path: str) -> bytes:
    return b"".join(bytes.fromhex(name("/".join(path[: i + 1]))) for i in range(len(path)))


def pattern(
    *path: str, at: int = T0, known: bool = False, qps: float = 0.5, scope: str = "s", tokens: int = 100
) -> bytes:
    found = SessionPattern(
        scope, "p", SUBJECT, at, ROOT, hashes(*path), (tokens,) * len(path), bytes(len(path)), known, 0.9, qps
    )
    return seal(Tag.PATTERN, "p", found)


def ready(drive: Drive, *replicas: str) -> Drive:
    for replica in replicas:
        drive.control(sample(replica, drive.now))
    return drive


def test_a_new_pattern_s_whole_prefix_is_warmed_at_once_on_every_replica() -> None:
    drive = ready(Drive(), "r1", "r2")
    (command,) = drive.hear(pattern("sys", "u1", "a1"))
    last = name("sys/u1/a1")
    assert [segment.hash for segment in command.target.segments] == [name("sys"), name("sys/u1"), last]
    assert (command.lane, command.reason.trigger) == ("fast", "consecutive_prompts")
    assert (command.replicas.names, command.cost.tokens) == (("r1", "r2"), 300)
    raw = int(fnv1a32(last.encode()) % 100 * 0.5 / 2.5)
    evidence = command.reason.evidence
    assert (evidence["priority_raw"], evidence["state"]) == (raw, 201)
    # Each of two replicas has seen one and a half of its three prompts, and serves half of the next ones.
    assert command.benefit.p_absent == pytest.approx(math.exp(-1.5))
    assert command.priority == 999 + round(50 * math.log2(command.benefit.p_asked * math.exp(-1.5) / 2))
    (insight,) = drive.insights
    assert isinstance(insight, Pattern)
    assert (insight.pattern, insight.subject, insight.state, insight.priority) == (
        "consecutive_prompts",
        SUBJECT,
        201,
        raw,
    )


def test_a_priority_beyond_999_is_clamped_in_the_command_and_whole_in_the_reason() -> None:
    drive = ready(Drive(policy=book(pattern={"rule": "spec"})), "r1")
    (command,) = drive.hear(pattern("sys", qps=2_000.0))
    raw = int(fnv1a32(name("sys").encode()) % 100 * 2_000 / 2.5)
    assert raw > 999
    assert (command.priority, command.reason.evidence["priority_raw"]) == (999, raw)


def of_worth(qps: float, copies: int, known: bool = False) -> WarmupCommand:
    """The command of one pattern, and beside it what the reference formula says."""
    drive = ready(Drive(policy=book(plan={"copies": copies})), "r1", "r2")
    (command,) = drive.hear(pattern("sys", f"{qps}", qps=qps, known=known))
    return command


def test_the_worthier_pattern_goes_first_where_the_formula_has_it_the_other_way_round() -> None:
    rare = of_worth(0.05, 1)
    often = of_worth(2.0, 1, known=True)
    # A session that asks so often keeps its prefix in every replica by itself.
    assert rare.benefit.p_absent > often.benefit.p_absent
    assert rare.priority > often.priority
    assert rare.reason.evidence["priority_raw"] < often.reason.evidence["priority_raw"]


def test_patterns_and_ticks_stand_in_one_line_by_what_a_token_of_theirs_earns() -> None:
    chance, line = random.Random(3), []
    for number in range(40):
        drive = ready(Drive(policy=book(plan={"copies": chance.randint(1, 3)})), "r1", "r2", "r3")
        rate = 10 ** chance.uniform(-3, -0.5)
        if number % 2:
            line += drive.hear(pattern("sys", "x", qps=rate, known=chance.random() < 0.5))
        else:
            drive.hear(hot(candidate("sys", "x", p_asked=chance.uniform(0.3, 0.9), rate=rate)))
            line += drive.run(TICK, samples=("r1", "r2", "r3"))
    assert {command.lane for command in line} == {"fast", "tick"}
    line.sort(key=lambda command: -command.priority)
    assert line[0].priority - line[-1].priority > 100
    earned = [command.reason.evidence["worth_density"] for command in line]
    for place, density in enumerate(earned):
        assert max(earned[place:]) <= density * 2 ** (1 / 50), "no more than a level of priority apart"


def test_a_line_that_is_not_worked_off_in_time_saves_more_by_worth_than_by_the_formula() -> None:
    chance, saved = random.Random(5), {"tuned": 0.0, "spec": 0.0}
    told = [(10 ** chance.uniform(-3, 0), chance.randint(100, 4_000), chance.random() < 0.5) for _ in range(200)]
    for rule in saved:
        drive = ready(Drive(policy=book(pattern={"rule": rule}, plan={"copies": 1})), "r1", "r2")
        line = [
            drive.hear(pattern(f"p{number}", qps=qps, tokens=tokens, known=known))[0]
            for number, (qps, tokens, known) in enumerate(told)
        ]
        line.sort(key=lambda command: (-command.priority, command.target_key))
        room = sum(command.cost.tokens for command in line) // 5
        for command in line:
            room -= command.cost.tokens
            if room < 0:
                break
            saved[rule] += command.benefit.p_asked * command.benefit.p_absent * command.benefit.saved_ms
    print(f"a fifth of the line, expected saving: by worth {saved['tuned']:.0f} ms, by formula {saved['spec']:.0f} ms")
    assert saved["tuned"] > saved["spec"]


def test_how_long_replicas_keep_things_is_learned_and_holds_for_patterns_too() -> None:
    drive = ready(Drive(), "r1")
    drive.hear(hot(*(candidate(f"c{i}", rate=0.02, tokens=1_000) for i in range(20))))
    for command in drive.run(TICK, samples=("r1",)):
        drive.control(outcome(command, "r1", drive.now))  # each was absent: nothing stays for long
    (learned,) = drive.hear(pattern("sys", qps=0.05, known=True, at=drive.now))
    assert learned.reason.evidence["stay_ms"] < 60_000
    assert learned.benefit.p_absent == pytest.approx(math.exp(-0.05 * learned.reason.evidence["stay_ms"] / 1000))


def test_a_known_pattern_s_missing_segments_are_all_that_is_paid_for() -> None:
    drive = ready(Drive(), "r1", "r2")
    (first,) = drive.hear(pattern("sys", "u1"))
    drive.control(residency(first, "r1", T0, 200))
    drive.now += 1_000
    (second,) = drive.hear(pattern("sys", "u1", "a1", known=True, at=T0 + 1_000))
    # r1 holds the first two of three segments, r2 is not known to hold any: 100 and 300 tokens, 200 a copy.
    assert second.reason.evidence["state"] == 202
    assert second.reason.evidence["tokens_missing"] == 200
    assert (second.replicas.names, second.cost.tokens) == (("r1", "r2"), 300)


def test_a_known_pattern_whose_prefix_is_resident_everywhere_asks_for_nothing() -> None:
    drive = ready(Drive(), "r1")
    (first,) = drive.hear(pattern("sys", "u1", "a1"))
    drive.control(outcome(first, "r1", T0))
    drive.now += 60_000  # another interval of the target, within its residency
    ready(drive, "r1")
    assert drive.hear(pattern("sys", "u1", "a1", known=True, at=drive.now)) == []
    assert [insight.state for insight in drive.insights] == [201, 202]


def test_one_target_has_one_command_in_its_interval() -> None:
    drive = ready(Drive(), "r1")
    assert len(drive.hear(pattern("sys"))) == 1
    assert drive.hear(pattern("sys", at=T0 + 10)) == []


@pytest.mark.parametrize(
    "bodies",
    [
        {"pattern": {"enabled": False}},
        {"plan": {"prefixes": False}},
        {"freeze": {"frozen": True}},
        {"budget": {"prefill_share": 0.0}},
    ],
    ids=["disabled", "no prefixes", "frozen", "no budget"],
)
def test_what_policy_forbids_is_told_and_not_warmed(bodies: dict[str, Any]) -> None:
    drive = ready(Drive(policy=book(**bodies)), "r1")
    assert drive.hear(pattern("sys")) == []
    assert len(drive.insights) == 1


def test_a_pattern_that_cannot_be_warmed_is_told_all_the_same() -> None:
    drive = Drive()
    assert drive.hear(pattern("sys")) == []  # no replica
    ready(drive, "r1")
    assert drive.hear(pattern()) == []  # no prefix in common
    assert drive.hear(pattern("sys", tokens=15)) == []  # no block filled
    assert drive.hear(pattern("sys"), lag=60_000) == []  # behind wall time
    assert len(drive.insights) == 4


def test_its_family_is_the_first_segment_below_the_trunk_that_hot_prefixes_show() -> None:
    drive = ready(Drive(), "r1")
    hot_path = candidate("sys", "tools", "family", p_asked=0.1)
    hot_path = type(hot_path)(
        0, hot_path.hashes, hot_path.tokens, hot_path.roles, name("sys/tools/family"), 0.0, 0.1, 1.0, T0
    )
    drive.hear(hot(hot_path))
    (command,) = drive.hear(pattern("sys", "tools", "mine", "u1"))
    assert command.unit == name("sys/tools/mine")
    (elsewhere,) = drive.hear(pattern("other", "mine"))
    assert elsewhere.unit == name("other")


def test_a_quiet_pool_forgets_its_patterns() -> None:
    drive = Drive()
    drive.hear(pattern("sys"))
    drive.run(120_000)
    assert drive.planner.blank
    assert drive.store.records == {}


# Managed prompts


def use(
    prompt: str, *path: str, at: int = T0, answered: int = 1, adopted: int = 0, root: Root = ROOT, tokens: int = 100
):
    found = PromptUse(
        "s", "p", prompt, at, 1, answered, adopted, root, hashes(*path), (tokens,) * len(path), bytes(len(path))
    )
    return seal(Tag.PROMPTS, "p", found)


def prompt_announcement(version: str, at: int, **more: Any) -> Announcement:
    segments = (Segment(name("sys"), 100, "system"), Segment(name("sys/tools"), 100, "system"))
    return Announcement(
        announcement_id=announcement_id("s", "p", "prompt", "faq", version, at),
        scope="s",
        pool="p",
        kind="prompt",
        name="faq",
        version=version,
        announced_at_ms=T0,
        at_ms=at,
        model="m",
        segments=segments,
        **more,
    )


def test_a_managed_prompt_is_warmed_by_what_its_requests_begin_with() -> None:
    drive = ready(Drive(), "r1", "r2")
    drive.hear(use("faq@3", "sys", "tools", "monday"))
    drive.hear(use("faq@3", "sys", "tools", "tuesday"))
    (command,) = drive.run(TICK, samples=("r1", "r2"))
    assert [segment.hash for segment in command.target.segments] == [name("sys"), name("sys/tools")]
    assert (command.reason.trigger, command.lane) == ("managed_prompt", "tick")
    assert command.reason.evidence["hotness"] == pytest.approx(2.0)  # 1 + 2 · 0.5
    assert command.benefit.p_asked == pytest.approx(0.2)
    assert command.replicas.names == ("r1", "r2")


def test_a_prompt_in_use_each_second_is_warmed_although_event_time_waits_for_late_events() -> None:
    drive = ready(Drive(), "r1")
    found = []
    for _ in range(10):
        drive.hear(use("faq@3", "sys", "tools", at=drive.now + 4_000))
        found += drive.run(1_000, samples=("r1",))
    (command,) = found
    assert command.reason.trigger == "managed_prompt"


def test_draws_go_by_hotness_and_once_in_an_interval() -> None:
    bodies = {"prompt": {"draws": 1}, "plan": {"prefix_repeat_ms": 10_000, "prefix_resident_ms": 1_000}}
    drive = ready(Drive(policy=book(**bodies)), "r1")
    drive.hear(use("hot@1", "hot", answered=18))  # 1 + 18 · 0.5 = 10, the ceiling
    drive.hear(use("cold@1", "cold", answered=0))  # 1
    drawn = []
    for _ in range(150):
        for command in drive.run(10_000, samples=("r1",)):
            drawn.append(command.target.segments[0].hash)
            drive.control(outcome(command, "r1", drive.now))
    assert 140 <= len(drawn) <= 151
    # Ten of eleven draws; 150 draws stray by 3.5 (one standard deviation).
    assert drawn.count(name("hot")) / len(drawn) == pytest.approx(10 / 11, abs=0.1)
    assert drawn.count(name("cold")) > 0


def test_a_draw_that_its_scope_cannot_pay_waits_within_its_interval() -> None:
    bodies = {"budget": {"prefill_share": 0.0005}, "plan": {"prefix_repeat_ms": 3_600_000}}  # 10 tokens a second
    drive = ready(Drive(policy=book(**bodies)), "r1")
    drive.hear(use("faq@3", "sys", "tools"))
    (talk,) = drive.hear(pattern("talk", tokens=1_000))  # from 300 to a debt of 700
    assert drive.run(80_000, samples=("r1",)) == []
    (command,) = drive.run(60_000, samples=("r1",))
    assert (talk.reason.trigger, command.reason.trigger) == ("consecutive_prompts", "managed_prompt")
    assert command.issued_at_ms - T0 == pytest.approx(90_000, abs=2 * TICK)  # 200 tokens are there
    assert drive.run(600_000, samples=("r1",)) == []


def test_a_prompt_without_a_prefix_or_below_a_block_is_not_drawn() -> None:
    drive = ready(Drive(), "r1")
    drive.hear(use("bare@1"))
    drive.hear(use("short@1", "sys", tokens=15))
    assert drive.run(TICK, samples=("r1",)) == []


def test_an_announced_prompt_is_drawn_from_its_effect_on_and_its_old_version_no_more() -> None:
    bodies = {"schedule": {"prefix_lead_ms": 0}, "plan": {"prefix_repeat_ms": 1_000, "prefix_resident_ms": 1_000}}
    drive = ready(Drive(policy=book(**bodies)), "r1")
    drive.hear(use("faq@7", "old", "prefix"))
    drive.control(prompt_announcement("8", T0 + 20_000, replaces="7", tags=("faq",)))
    before = drive.run(19_000, samples=("r1",))
    assert {command.target.segments[0].hash for command in before} == {name("old")}
    after = drive.run(60_000, samples=("r1",))
    assert {command.target.segments[0].hash for command in after} == {name("sys")}


def test_a_prompt_that_was_taken_back_is_not_drawn() -> None:
    drive = ready(Drive(), "r1")
    drive.control(prompt_announcement("8", T0 - 120_000))
    drive.control(prompt_announcement("8", T0 - 120_000, deleted=True))
    assert drive.run(5_000, samples=("r1",)) == []


def test_a_version_stays_when_the_one_that_was_to_replace_it_is_taken_back() -> None:
    drive = ready(Drive(), "r1")
    drive.hear(use("faq@7", "old", "prefix"))
    drive.control(prompt_announcement("8", T0 + 20_000, replaces="7"))
    drive.control(prompt_announcement("8", T0 + 20_000, replaces="7", deleted=True))
    drive.run(30_000, samples=("r1",))
    assert drive.planner._prompts._prompts.hottest("s", 9, drive.now) == [("faq@7", 1.5)]


def test_taking_back_an_earlier_announcement_leaves_a_later_one_of_the_same_version() -> None:
    drive = ready(Drive(), "r1")
    drive.hear(use("faq@7", "rules", "faq 7"))
    drive.control(prompt_announcement("8", T0 + 20_000, replaces="7"))
    drive.control(prompt_announcement("8", T0 + 40_000, replaces="7"))
    drive.control(prompt_announcement("8", T0 + 20_000, replaces="7", deleted=True))
    drive.rebuild()
    prompts = drive.planner._prompts._prompts
    assert {prompt for prompt, _ in prompts.hottest("s", 9, T0 + 60_000)} == {"faq@7", "faq@8"}
    drive.run(60_000, ["r1"])
    assert [prompt for prompt, _ in prompts.hottest("s", 9, drive.now)] == ["faq@8"], "the old one ends all the same"
    drive.control(prompt_announcement("8", T0 + 40_000, replaces="7", deleted=True))
    assert prompts.hottest("s", 9, drive.now) == []


def test_a_prompt_that_nobody_used_for_thirty_days_leaves_the_pool() -> None:
    drive = Drive()
    drive.hear(use("faq@3", "sys", at=T0 - 31 * 86_400_000))
    drive.hear(use("desk@1", "sys", at=T0))
    drive.run(TICK)
    assert [prompt for prompt, _ in drive.planner._prompts._prompts.hottest("s", 9, drive.now)] == ["desk@1"]
    assert not [key for key in drive.store.records if key.startswith("ml") and "faq" in key]


def test_prompts_are_off_where_policy_says_so() -> None:
    drive = ready(Drive(policy=book(prompt={"enabled": False})), "r1")
    drive.hear(use("faq@3", "sys"))
    assert drive.run(5_000, samples=("r1",)) == []


# Recovery

PATHS = [("sys",), ("sys", "u1"), ("sys", "u1", "a1"), ("other", "x")]
events = st.one_of(
    st.tuples(st.just("pattern"), st.sampled_from(PATHS), st.booleans(), st.sampled_from("st")),
    st.tuples(st.just("use"), st.sampled_from(["faq@1", "faq@2", "b@1"]), st.sampled_from(PATHS), st.integers(0, 3)),
    st.tuples(st.just("announce"), st.sampled_from(["1", "2"]), st.integers(-20, 20)),
    st.tuples(st.just("hot"), st.sampled_from(PATHS)),
    st.tuples(st.just("outcome"), st.floats(0, 0.99), st.sampled_from(["applied", "failed", "resident"])),
    st.tuples(st.just("run"), st.integers(1, 40)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(events, max_size=25), st.sets(st.integers(0, 25)))
def test_a_planner_with_patterns_and_prompts_rebuilt_anywhere_says_the_same(
    script: list[Any], crashes: set[int]
) -> None:
    def run(crashes: set[int]) -> list[bytes]:
        bodies = {
            "plan": {"prefix_repeat_ms": 5_000, "prefix_resident_ms": 20_000, "prefix_life_ms": 5_000},
            "budget": {"prefill_share": 0.001},
        }
        drive, issued = Drive(policy=book(**bodies)), []
        for index, (kind, *rest) in enumerate(script):
            if index in crashes:
                drive.rebuild()
                items = list(drive.store.records.items())
                random.Random(index).shuffle(items)
                drive.store.records = dict(items)
                drive.planner = type(drive.planner)(drive.config, drive.pool, drive.store)
            if kind == "pattern":
                path, known, scope = rest
                issued += drive.hear(pattern(*path, at=drive.now, known=known, scope=scope))
            elif kind == "use":
                prompt, path, answered = rest
                issued += drive.hear(use(prompt, *path, at=drive.now, answered=answered))
            elif kind == "announce":
                version, offset = rest
                replaces = "1" if version == "2" else None
                issued += drive.control(prompt_announcement(version, drive.now + offset * 1_000, replaces=replaces))
            elif kind == "hot":
                issued += drive.hear(hot(candidate(*rest[0]), at=drive.now))
            elif kind == "outcome" and issued:
                command = issued[int(rest[0] * len(issued))]
                drive.control(outcome(command, command.replicas.names[0], drive.now, rest[1]))
            elif kind == "run":
                issued += drive.run(rest[0] * 1_000, samples=("r1", "r2"))
        said = [encode(command) for command in issued] + [encode(insight) for insight in drive.insights]
        return [*said, *(key.encode() + blob for key, blob in sorted(drive.store.records.items()))]

    assert run(crashes) == run(set())
