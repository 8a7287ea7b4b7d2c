"""Rules about LoRA adapters (D12)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from analytics import adapters
from schemas.fields import Share
from stoker.heat_page import heat_page
from stoker.rules.registry import Input, rule

Amount = Annotated[float, Meta(ge=0)]


class KeepInput(Input, frozen=True, kw_only=True):
    """Event times of an adapter's uses in rising order, and its priority."""

    uses_ms: list[int]
    priority: Share


@rule("should_keep", "D12", {"uses_ms": [1_000, 20_000], "priority": 0.8})
def should_keep(asked: KeepInput) -> object:
    """Whether an adapter stays resident: in use with a priority above 0.7, else with one above 0.95."""
    return {"keep": adapters.should_keep(asked.uses_ms, asked.priority)}


class HeatInput(Input, frozen=True, kw_only=True):
    """Gradients or activity of each module over times; an adapter's rank and alpha."""

    rank: Annotated[int, Meta(ge=1)]
    alpha: Amount
    gradients: dict[str, list[list[float]]] | None = None
    activity: dict[str, list[Amount]] | None = None
    pixels: bool = False
    page: bool = False


@rule("lora_heat", "D12", {"rank": 8, "alpha": 16, "activity": {"q_proj": [1, 4], "v_proj": [0, 2]}})
def lora_heat(asked: HeatInput) -> object:
    """Heat of an adapter's modules over time, in [0, 1]; with pixels also as colours, with page as HTML."""
    heat = adapters.lora_heat(asked.rank, asked.alpha, asked.gradients, asked.activity)
    found: dict[str, object] = {"modules": heat.modules, "values": heat.values, "source": heat.source}
    if asked.pixels:
        found["rgba"] = heat.rgba()
    if asked.page:
        found["page"] = heat_page(heat)
    return found


class ReleaseInput(Input, frozen=True, kw_only=True):
    """The release that runs, the new one, and the digests of what was loaded and of the manifest."""

    old: adapters.LoraStructure | None = None
    new: adapters.LoraStructure
    loaded: adapters.Digest
    manifest: adapters.Digest
    snapshot: adapters.Digest | None = None
    baseline: adapters.Digest | None = None


def _structure(rank: int) -> dict[str, object]:
    return {
        "rank": rank,
        "alpha": 16,
        "target_modules": ["q_proj"],
        "modules": {"q_proj": {"a": [rank, 64], "b": [64, rank]}},
    }


@rule(
    "lora_release_check",
    "D12",
    {
        "old": _structure(8),
        "new": _structure(16),
        "loaded": {"version": "2", "sha256": "ab"},
        "manifest": {"version": "2", "sha256": "ab"},
    },
)
def lora_release_check(asked: ReleaseInput) -> object:
    """Whether a release of an adapter may be loaded, and each field that blocks it."""
    return adapters.lora_release_check(
        asked.old, asked.new, asked.loaded, asked.manifest, asked.snapshot, asked.baseline
    )
