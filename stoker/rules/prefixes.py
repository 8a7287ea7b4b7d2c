"""Rules about prefixes (D11)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from analytics import prefix_linter
from analytics.envelopes import Candidate, Candidates, Chain, PrefixDelta, Root, open_as
from analytics.facts import ROLE_INDEX
from analytics.prefix_nodes import HASH_BYTES
from analytics.prefixes import PrefixConfig, PrefixTree
from analytics.stores import MemoryMapStore
from schemas.canonical import h128
from schemas.fields import Ms
from schemas.request_event import Role
from stoker.rules.registry import Input, rule

Tokens = Annotated[int, Meta(ge=1)]


class Piece(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A segment; its name stands for its text, and hashes are chained over the names before it."""

    name: str
    tokens: Tokens
    role: Role = "user"


class AskedPrompt(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prompt and when it was asked for."""

    at_ms: Ms
    segments: Annotated[list[Piece], Meta(min_length=1)]


class CandidatesInput(Input, frozen=True, kw_only=True):
    """Prompts of one scope and pool, and the end of the slide at which candidates are named."""

    prompts: Annotated[list[AskedPrompt], Meta(min_length=1)]
    at_ms: Ms
    half_life_ms: Annotated[int, Meta(ge=1000)] = PrefixConfig().half_life_ms
    horizon_ms: Annotated[int, Meta(ge=1000)] = PrefixConfig().horizon_ms
    min_p_asked: Annotated[float, Meta(gt=0, lt=1)] = PrefixConfig().min_p_asked
    min_tokens: Tokens = PrefixConfig().min_tokens


def _prompt(at_ms: int, document: str) -> dict[str, object]:
    return {
        "at_ms": at_ms,
        "segments": [
            {"name": "rules", "tokens": 200, "role": "system"},
            {"name": document, "tokens": 800},
        ],
    }


@rule(
    "prefix_candidates",
    "D11",
    {
        "prompts": [_prompt(1_000, "terms"), _prompt(4_000, "terms"), _prompt(7_000, "once"), _prompt(9_000, "terms")],
        "at_ms": 10_000,
    },
)
def prefix_candidates(asked: CandidatesInput) -> object:
    """The deepest prefixes that will probably be asked for within the horizon, the hottest first."""
    config = PrefixConfig(
        half_life_ms=asked.half_life_ms,
        horizon_ms=asked.horizon_ms,
        min_p_asked=asked.min_p_asked,
        min_tokens=asked.min_tokens,
    )
    tree = PrefixTree(config, MemoryMapStore())
    chains = tuple(_chain(prompt) for prompt in asked.prompts)
    tree.on_delta(
        PrefixDelta("default", "gpu", 0, asked.at_ms, (Root("m", "", "", "", ""),), chains, float(len(chains)))
    )
    names = {_hashes(prompt)[-1]: [piece.name for piece in prompt.segments] for prompt in asked.prompts}
    for prompt in asked.prompts:
        for depth, digest in enumerate(_hashes(prompt)):
            names.setdefault(digest, [piece.name for piece in prompt.segments[: depth + 1]])
    slide_end_ms = tree.next_timer_ms or asked.at_ms
    found = [
        candidate for envelope in tree.on_timer(slide_end_ms) for candidate in open_as(envelope, Candidates).candidates
    ]
    return {"at_ms": slide_end_ms, "candidates": [_shown(candidate, names) for candidate in found]}


def _shown(candidate: Candidate, names: dict[str, list[str]]) -> dict[str, object]:
    return {
        "segments": names[candidate.hashes[-HASH_BYTES:].hex()],
        "tokens": sum(candidate.tokens),
        "unit": candidate.unit,
        "rate_per_s": candidate.rate_per_s,
        "p_asked": candidate.p_asked,
        "requests": candidate.requests,
    }


def _hashes(prompt: AskedPrompt) -> list[str]:
    names = [piece.name for piece in prompt.segments]
    return [h128(*names[: depth + 1]) for depth in range(len(names))]


def _chain(prompt: AskedPrompt) -> Chain:
    return Chain(
        0,
        bytes.fromhex("".join(_hashes(prompt))),
        tuple(piece.tokens for piece in prompt.segments),
        bytes(ROLE_INDEX[piece.role] for piece in prompt.segments),
        1.0,
        prompt.at_ms,
    )


class LintPrompt(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prompt and its template, so many times."""

    template: str
    segments: Annotated[list[Piece], Meta(min_length=1)]


class LintInput(Input, frozen=True, kw_only=True):
    """Prompts, and the time that they were asked in."""

    prompts: list[LintPrompt]
    span_ms: Annotated[int, Meta(ge=1)] = 3_600_000


@rule(
    "prefix_linter",
    "D11",
    {
        "prompts": [
            {
                "template": "shop@1",
                "segments": [
                    {"name": "greeting", "tokens": 14, "role": "system"},
                    {"name": f"now {number}", "tokens": 9, "role": "system"},
                    {"name": "rules", "tokens": 700, "role": "system"},
                    {"name": f"question {number}", "tokens": 12},
                ],
            }
            for number in range(20)
        ]
    },
)
def lint(asked: LintInput) -> object:
    """Templates whose prompts part early although the same text follows, and what moving the difference frees."""
    prompts = []
    for prompt in asked.prompts:
        names = [piece.name for piece in prompt.segments]
        parts = [
            prefix_linter.Part(h128(*names[: depth + 1]), piece.tokens, piece.role)
            for depth, piece in enumerate(prompt.segments)
        ]
        prompts.append((prompt.template, parts))
    return {"divergences": prefix_linter.lint(prompts, asked.span_ms)}
