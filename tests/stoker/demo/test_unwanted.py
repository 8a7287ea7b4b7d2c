"""What the bad policy warms beside what is asked for."""

from __future__ import annotations

from itertools import pairwise

from schemas import Announcement, decode, encode
from stoker.demo.config import DemoConfig
from stoker.demo.profile import generated_profile
from stoker.demo.unwanted import WORDS, unwanted
from stoker.simulator.tokenizer import Tokenizer


def test_each_prompt_is_its_own_of_a_scope_that_keeps_texts_and_fills_the_room_it_is_meant_to() -> None:
    config = DemoConfig(generated_profile(3), minutes=0.5, lru_minutes=0, seed=3)
    made = list(unwanted(config, 10_000, 9_000, "main", "tiny"))
    assert len(made) == 30
    assert {change.scope for change, _ in made} == {"shop", "docs"}
    assert [later.at_ms - earlier.at_ms for (earlier, _), (later, _) in pairwise(made)] == [1_000] * 29
    assert made[0][0].at_ms == 10_000
    assert len({change.segments[0].hash for change, _ in made}) == len({text for _, text in made}) == 30
    assert all(decode(encode(change), Announcement) == change for change, _ in made)
    encoded = {Tokenizer(32_000).encode(text)[: 4 * 16] for _, text in made}
    assert len(encoded) == 30, "no two share their first block"
    tokens = len(Tokenizer(32_000).encode(made[0][1])) // 4
    assert WORDS <= tokens <= WORDS + 4


def test_the_bad_policy_s_budget_bounds_nothing_and_every_mode_says_what_it_is() -> None:
    profile = generated_profile(3)
    bad, full = DemoConfig(profile, mode="bad").policies(), DemoConfig(profile).policies()
    assert bad["budget"]["prefill_share"] == 1.0
    assert float(bad["budget"]["prefill_tokens_per_s"] or 0) > float(full["budget"]["prefill_tokens_per_s"] or 0)
    assert DemoConfig(profile, mode="off").policies()["plan"] == {"shadow": True}
