"""Rules about managed prompts (D7)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from analytics import prompt_pool
from stoker.rules.registry import Input, rule

Amount = Annotated[float, Meta(ge=0)]
Uses = Annotated[int, Meta(ge=0)]


class HotnessInput(Input, frozen=True, kw_only=True):
    """Hotness after the last use, the time since, and what uses there are now."""

    hotness: Amount = prompt_pool.INITIAL
    idle_ms: Uses
    adopted: Uses = 0
    answered: Uses = 0
    ceiling: Annotated[float, Meta(gt=0)] = 10.0


@rule("prompt_hotness", "D7", {"hotness": 2.0, "idle_ms": 172_800_000, "adopted": 1, "answered": 1})
def prompt_hotness(asked: HotnessInput) -> object:
    """Hotness of a managed prompt: what idle days took and what uses add, up to a ceiling."""
    return {
        "hotness": prompt_pool.prompt_hotness(
            asked.hotness, asked.idle_ms, asked.adopted, asked.answered, asked.ceiling
        )
    }


class SampleInput(Input, frozen=True, kw_only=True):
    """Hotness of each prompt, and a number in [0, 1)."""

    hotness: list[Amount]
    u: Annotated[float, Meta(ge=0, lt=1)]


@rule("prompt_sample", "D7", {"hotness": [1.0, 3.0, 1.0], "u": 0.5})
def prompt_sample(asked: SampleInput) -> object:
    """The prompt that a cumulative roulette draws, by its index."""
    return {"index": prompt_pool.prompt_sample(asked.hotness, asked.u)}
