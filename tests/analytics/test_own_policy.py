"""A tick's offers under a policy of the deployment's own: its rank, what it leaves out, and its mistakes."""

from __future__ import annotations

import math

import pytest

from analytics.own_policy import OwnPolicy, Proposal
from analytics.plan_config import PlanConfig
from schemas import PlannerState, WarmupCommand
from schemas.canonical import query_sha256
from tests.analytics.test_planning import REDIS, Drive, book, candidate, embedded, hot, partial, ready


class ByTokens:
    """The longest first, nothing of 100 tokens and less."""

    def __init__(self) -> None:
        self.asked: list[Proposal] = []

    def density(self, proposal: Proposal) -> float:
        self.asked.append(proposal)
        return float(proposal.tokens - 100)


class Broken:
    """Answers what it was given, or raises it."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def density(self, _proposal: Proposal) -> float:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer  # type: ignore[return-value]


def planned(own: OwnPolicy | None) -> tuple[list[WarmupCommand], PlannerState]:
    """Three hot prefixes, the likeliest one shortest, on one replica; and the first report."""
    drive = Drive(config=PlanConfig(own=own))
    ready(drive, "r1")
    drive.hear(
        hot(
            candidate("short", tokens=100, p_asked=0.9),
            candidate("middle", tokens=2_000, p_asked=0.6),
            candidate("long", tokens=4_000, p_asked=0.5),
        )
    )
    commands = drive.run()
    (report,) = (each for each in drive.insights if isinstance(each, PlannerState))
    return commands, report


def keys(commands: list[WarmupCommand]) -> list[str]:
    names = {f"prefix:{query_sha256(name)}": name for name in ("short", "middle", "long")}
    return [names[command.target_key] for command in commands]


def test_without_a_policy_the_likeliest_goes_first_and_nothing_is_said_of_one() -> None:
    commands, report = planned(None)
    assert keys(commands) == ["short", "middle", "long"]
    assert "own_left_out" not in report.evidence
    assert all("own_density" not in command.reason.evidence for command in commands)


def test_a_policy_ranks_what_a_tick_takes_leaves_out_and_is_seen_in_the_reason() -> None:
    own = ByTokens()
    commands, report = planned(own)
    assert keys(commands) == ["long", "middle"]
    assert [command.priority for command in commands] == [999, 499]
    assert [command.reason.evidence["own_density"] for command in commands] == [3_900.0, 1_900.0]
    assert (report.evidence["own_left_out"], report.evidence["own_faults"]) == (1.0, 0.0)


def test_a_proposal_tells_what_the_command_will_tell() -> None:
    own = ByTokens()
    commands, _ = planned(own)
    proposals = {proposal.target_key: proposal for proposal in own.asked}
    assert len(proposals) == 3
    for command in commands:
        proposal = proposals[command.target_key]
        assert (proposal.kind, proposal.pool, proposal.scope, proposal.copies) == ("prefix", "p", "s", 1)
        assert (proposal.at_ms, proposal.tokens) == (command.issued_at_ms, command.cost.tokens)
        assert proposal.trigger == command.reason.trigger
        assert (proposal.worth.p_asked, proposal.worth.saved_ms) == (command.benefit.p_asked, command.benefit.saved_ms)
        # For prefixes the planner's own rank is the worth's density, which the reason shows.
        assert proposal.density == pytest.approx(command.reason.evidence["worth_density"])


@pytest.mark.parametrize("answer", [ValueError("no"), "many", None, math.nan, math.inf])
def test_a_policy_s_mistake_leaves_the_built_in_rank_and_is_counted(answer: object) -> None:
    commands, report = planned(Broken(answer))
    assert keys(commands) == ["short", "middle", "long"]
    assert (report.evidence["own_left_out"], report.evidence["own_faults"]) == (0.0, 3.0)


def test_queries_of_the_redis_pool_are_asked_about_too_but_not_what_is_owed_at_once() -> None:
    class Nothing:
        def density(self, proposal: Proposal) -> float:
            assert proposal.kind == "embedding"
            return 0.0

    def heard(own: OwnPolicy | None, second_sight: bool) -> int:
        drive = Drive(REDIS, book(plan={"second_sight": second_sight}), PlanConfig(own=own))
        drive.hear(partial({query_sha256("q"): 9}, drive.now, key=REDIS))
        issued = drive.hear(embedded("q", drive.now))
        return len(issued + drive.run(20_000))

    assert heard(None, second_sight=False) == 1
    assert heard(Nothing(), second_sight=False) == 0
    assert heard(Nothing(), second_sight=True) == 1
