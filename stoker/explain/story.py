"""A command's story for a terminal and as JSON: why, what it is worth and costs, what it was paid from, what lost, and
what became of it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from schemas import Prefix, WarmupCommand, WarmupOutcome
from stoker.explain.findings import Findings

Numbers = Mapping[str, float]

WHY: dict[str, Callable[[Numbers], str]] = {
    "hot_prefix": lambda n: (
        f"the prefix is hot: {_n(n, 'rate_per_s')} requests/s, last asked for {_s(n, 'last_asked_ms_ago')} before, and "
        f"{_n(n, 'replicas_missing')} of {_n(n, 'replicas_ready')} ready replicas lacked it"
    ),
    "lost_prefix": lambda n: (
        f"a replica had just lost this hot prefix ({_n(n, 'rate_per_s')} requests/s, last asked for "
        f"{_s(n, 'last_asked_ms_ago')} before): it was warmed there again at once"
    ),
    "renewed_prefix": lambda n: (
        f"the prefix is hot ({_n(n, 'rate_per_s')} requests/s, last asked for {_s(n, 'last_asked_ms_ago')} before) and "
        f"still there, but a replica keeps things for {_s(n, 'stay_ms')} only: a touch makes it the last to go"
    ),
    "consecutive_prompts": lambda n: (
        f"a session sent like prompts in a row (similarity {_n(n, 'similarity')}, {_n(n, 'qps')} requests/s): the next "
        f"one will begin alike"
    ),
    "managed_prompt": lambda n: f"a managed prompt was drawn by its hotness, {_n(n, 'hotness')}",
    "adapter_rate": lambda n: f"the adapter was asked for {_n(n, 'uses_in_minute')} times in the last minute",
    "adapter_hot": lambda n: (
        f"the adapter is in use ({_n(n, 'uses_in_minute')} times in the last minute) and was not resident"
    ),
    "adapter_class": lambda n: (
        f"the adapter is in use, and its class found only {_share(n, 'class_hit_ratio')} of its adapters resident "
        f"instead of {_share(n, 'class_floor')}"
    ),
    "adapter_expected": lambda n: (
        f"nobody asked for the adapter yet, but what is usual makes it likely: {_share(n, 'confidence')} of such "
        f"expectations came true ({_n(n, 'judged')} judged)"
    ),
    "adapter_idle": lambda _: "nobody had used the adapter for long, and its slot was needed",
    "announced": lambda n: f"the change was announced: it takes effect {_ahead(n.get('takes_effect_in_ms', 0.0))}",
    "withdrawn": lambda n: f"the announcement that had asked for {_n(n, 'commands')} commands was withdrawn or moved",
    "second_sight": lambda _: "the query was seen for the second time: what is asked twice is likely asked again",
    "hot_query": lambda n: (
        f"the query is hot: score {_n(n, 'score')}, {_n(n, 'rate_per_s')} requests/s, "
        + ("with rewards in it" if n.get("reward_known") else "by demand alone, since nobody judged it")
    ),
    "focus": lambda n: "a crowd gathers on it" + _crowd(n) + _raised(n),
    "cluster": lambda n: (
        f"it belongs to a group of like queries that is massive or growing: {_n(n, 'mass')} requests, "
        f"growth {_n(n, 'growth')}"
    ),
    "rewarded_answer": lambda n: (
        f"the answer earned {_n(n, 'reward')} in {_n(n, 'judgements')} judgements, and its query is hot (score "
        f"{_n(n, 'score')})"
    ),
    "bad_reward": lambda n: f"the answer's mean reward fell to {_n(n, 'reward')} in {_n(n, 'judgements')} judgements",
    "replaced": lambda _: "the model or template behind the answer was replaced",
}
"""Triggers in words; of any other one its name and its numbers are shown."""

BUDGET = ("budget_per_s", "budget_share", "budget_left")


def tell(found: Findings) -> str:
    """The whole story, a paragraph a heading."""
    command = found.command
    parts = [
        ("", _what(command)),
        ("why", _why(found)),
        ("worth", _worth(command)),
        ("cost", _cost(command)),
        ("paid from", _paid(command)),
        ("beside it", _beside(found)),
        ("arm", _arm(command)),
        ("outcome", _outcome(found)),
        ("numbers", ", ".join(f"{name} {_number(value)}" for name, value in sorted(command.reason.evidence.items()))),
    ]
    return "\n".join(f"{heading:<10}{text}" if heading else text for heading, text in parts if text)


def as_json(found: Findings) -> dict[str, Any]:
    """Everything that was found, in the JSON of the topics."""
    document: dict[str, Any] = msgspec.to_builtins(
        {
            "command": found.command,
            "rank": found.rank if found.tick else None,
            "tick": [each.command_id for each in found.tick],
            "left_out": found.left_out,
            "earlier": [each.command_id for each in found.earlier],
            "planner": found.state,
            "focus": found.focus,
            "score": found.score,
            "outcomes": [found.outcomes[replica] for replica in sorted(found.outcomes)],
        }
    )
    return {**document, "story": tell(found).splitlines()}


def _what(command: WarmupCommand) -> str:
    where = f" on {', '.join(command.replicas.names)}" if command.replicas.names else ""
    first = f"{command.command_id}: {command.action} {command.target_key}{where} for {command.scope} in {command.pool}"
    span = f"issued {_clock(command.issued_at_ms)}, expires {_clock(command.expires_at_ms)}"
    if command.after:
        span += f", after {', '.join(command.after)}"
    return f"{first}\n{'':<10}{span}, priority {command.priority} ({command.qos}), {command.lane} lane"


def _why(found: Findings) -> str:
    reason = found.command.reason
    words = WHY.get(reason.trigger)
    text = f"{reason.trigger}: {words(reason.evidence)}" if words else f"{reason.trigger} (see the numbers)"
    if found.focus is not None and reason.trigger == "focus":
        focus = found.focus
        text += (
            f"; {focus.rule} saw it at {_clock(focus.at_ms)}: entropy {_number(focus.entropy_bits)} bits against "
            f"{_number(focus.baseline_bits)}, {_number(focus.qps)} requests/s"
        )
    if found.score is not None and found.score.rewards:
        score = found.score
        text += f"; last judged {_number(score.reward)}, which made its score {_number(score.score)}"
    attempt = int(reason.evidence.get("attempt", 1))
    if attempt > 1:
        text += f"; attempt {attempt}, since an earlier one failed or was lost"
    if found.earlier:
        last = found.earlier[-1]
        ago_s = (found.command.issued_at_ms - last.issued_at_ms) / 1000
        text += f"; commanded before: {len(found.earlier)} times, last {ago_s:.0f} s earlier ({last.command_id[:12]})"
    return text


def _crowd(numbers: Numbers) -> str:
    """What the tuned rule counted; the spec rules count no users."""
    if "focus_users" not in numbers:
        return ""
    users, slides, jump = (_n(numbers, f"focus_{name}") for name in ("users", "span_panes", "jump"))
    return (
        f": {users} users in {slides} slides, {jump} times as many requests as before, "
        f"{numbers.get('focus_share', 0.0):.1%} of all who asked beyond what is usual, gaps that vary by "
        f"{_n(numbers, 'focus_gap_variation')}"
    )


def _raised(numbers: Numbers) -> str:
    if "boost" not in numbers:
        return ""
    score = f", score {_n(numbers, 'score')}" if "score" in numbers else ""
    return f"; raised {_n(numbers, 'boost')}-fold{score}"


def _worth(command: WarmupCommand) -> str:
    benefit = command.benefit
    if not benefit.saved_ms:
        return ""
    expected_ms = benefit.p_asked * benefit.p_absent * benefit.saved_ms * benefit.reward
    reward = "" if benefit.reward == 1 else f" × reward {_number(benefit.reward)}"
    density = command.reason.evidence.get("worth_density")
    each = "" if density is None else f"; {_number(density)} ms per unit of cost"
    return (
        f"{_number(expected_ms)} ms expected = {benefit.p_asked:.0%} asked for within the horizon × "
        f"{benefit.p_absent:.0%} absent then{_absent_by(command)} × {_number(benefit.saved_ms)} ms saved{reward}{each}"
    )


def _absent_by(command: WarmupCommand) -> str:
    """Where the chance of absence comes from: what a replica told, its shadow, or an expectation alone."""
    numbers = command.reason.evidence
    if command.reason.trigger == "lost_prefix":
        return " (its replica said so)"
    if command.reason.trigger == "renewed_prefix":
        return " unless it is touched now, what goes for it paid for"
    if "stay_shadow_ms" in numbers:
        return " (by capacity and traffic of the replicas)"
    return " (by expectation)" if "stay_ms" in numbers else ""


def _cost(command: WarmupCommand) -> str:
    cost, copies = command.cost, command.replicas.max if command.replicas.names else 1
    parts = []
    if cost.tokens:
        parts.append(
            f"{_number(cost.tokens)} tokens of prefill" + (f" on each of {copies} replicas" if copies > 1 else "")
        )
    if cost.bytes:
        parts.append(f"{_number(cost.bytes)} bytes")
    if isinstance(command.target, Prefix) and len(command.target.segments) > 1:
        parts.append(f"{len(command.target.segments)} segments")
    return ", ".join(parts)


def _paid(command: WarmupCommand) -> str:
    numbers = command.reason.evidence
    if not all(name in numbers for name in BUDGET):
        return ""
    share = f", {numbers['budget_share']:.1%} of the pool's" if numbers["budget_share"] else ""
    left = numbers["budget_left"]
    held = f"{_number(left)} left after it" if left >= 0 else f"{_number(-left)} in debt after it, to be earned first"
    return f"the budget of {command.scope}: {_number(numbers['budget_per_s'])} a second{share}; {held}"


def _beside(found: Findings) -> str:
    command, state = found.command, found.state
    if command.lane == "fast":
        return "sent at once: nothing competed with it but its scope's budget"
    others = len(found.tick) - 1
    text = f"place {found.rank} of {len(found.tick)} that this tick took" if others else "all that this tick took"
    if found.left_out:
        text += f"; {command.scope} could not pay beside it:"
        for each in found.left_out:
            rank = "" if _number(each.rank) == _number(each.worth_density) else f", ranked by {_number(each.rank)}"
            text += (
                f"\n{'':<10}  {each.target_key} ({each.trigger}), {_number(each.worth_density)} ms per unit of cost"
                f"{rank}, would cost {_number(each.cost)}"
            )
    elif state is not None and state.at_ms == command.issued_at_ms:
        text += f"; {command.scope} is told to have missed nothing that was worth it"
    return text


def _arm(command: WarmupCommand) -> str:
    if command.arm == "hold":
        return f"held out: unit {command.unit} is in the {1 - command.propensity:.0%} that stay unwarmed in its period"
    text = f"warm, with probability {command.propensity:.0%} for unit {command.unit}"
    return f"{text}; shadow: recorded, not applied" if command.shadow else text


def _outcome(found: Findings) -> str:
    if not found.outcomes:
        return f"none is published; without one it ended unseen or runs until {_clock(found.command.expires_at_ms)}"
    return f"\n{'':<10}".join(_ended(found.outcomes[replica]) for replica in sorted(found.outcomes))


def _ended(outcome: WarmupOutcome) -> str:
    text = f"{outcome.status} on {outcome.replica} ({outcome.reason.value}) at {_clock(outcome.finished_at_ms)}"
    text += f", {_number(outcome.queued_ms)} ms queued, {_number(outcome.apply_ms)} ms applying"
    if outcome.tokens_warmed or outcome.tokens_already_resident:
        text += f", {outcome.tokens_warmed} tokens computed, {outcome.tokens_already_resident} found there"
    return text + (f": {outcome.error}" if outcome.error else "")


def _n(numbers: Numbers, name: str) -> str:
    return _number(numbers[name]) if name in numbers else "?"


def _share(numbers: Numbers, name: str) -> str:
    return f"{numbers[name]:.0%}" if name in numbers else "?"


def _s(numbers: Numbers, name: str) -> str:
    return f"{numbers[name] / 1000:.0f} s" if name in numbers else "?"


def _ahead(ms: float) -> str:
    return f"{ms / 1000:.0f} s later" if ms >= 0 else f"since {-ms / 1000:.0f} s"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def _clock(at_ms: int) -> str:
    at = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
    return at.strftime("%H:%M:%S.") + f"{at_ms % 1000:03d}"
