"""What a Redis pool takes first when it cannot take everything."""

from __future__ import annotations

from schemas import EVERY_SCOPE, Policy
from tests.analytics.test_answer_planning import KEY, QUERY, Drive
from tests.analytics.test_planning import REDIS, T0, book, name, partial


def test_what_saves_more_goes_first_whatever_its_kind() -> None:
    drive = Drive(policy=book(budget={"embeddings_per_s": 0.0}))
    drive.hear(partial({name("hotter"): 9, QUERY: 4}, T0, key=REDIS))
    drive.vector(text="hotter")
    drive.vector()
    drive.answer()
    drive.reward(0.9)
    assert drive.run(30_000) == []
    one_a_second = {"embeddings_per_s": 1.0, "burst_ms": 1_000}
    drive.policy.apply(
        Policy(scope=EVERY_SCOPE, section="budget", writer="test", version=2, at_ms=2, body=one_a_second)
    )
    first, second, third = drive.run(30_000)
    assert first.target_key == KEY, "an answer that lies ready saves a hundred times what an embedding does"
    assert [command.unit for command in (second, third)] == [name("hotter"), QUERY], "within a kind by score"
    assert first.reason.evidence["score"] < second.reason.evidence["score"]
    [state] = [state for state in drive.states if state.at_ms == first.issued_at_ms]
    assert [each.target_key for each in state.left_out] == [second.target_key, third.target_key]
    assert state.left_out[0].rank > state.left_out[1].rank
