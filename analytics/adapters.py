"""LoRA adapters (D12, spec): the record, who stays, how hot modules are, and what makes a release safe to load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

STAY_GAP_MS = 30_000
"""A last gap below it says that the adapter is in use."""
STAY_USES = 2
PRIORITY_IN_USE = 0.7
PRIORITY_ALWAYS = 0.95
PRIORITY_OF_CLASS: Mapping[str, float] = {"guaranteed": 1.0, "burstable": 0.8, "best_effort": 0.5}
"""Where policy names no priority: the first stays always, the second while it is in use, the third never."""


class AdapterRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one version of an adapter.

    Attributes:
        rank, alpha, dropout, target_modules: its structure; None or empty where nobody told.
        merged: whether its weights are part of the base model, so that it can neither be loaded nor go.
        last_updated, last_used: event times in ms; 0 where never.
        sha256: digest of its weights.
        priority: 0 to 1.
    """

    adapter_name: str
    rank: int | None = None
    alpha: float | None = None
    dropout: float | None = None
    target_modules: tuple[str, ...] = ()
    merged: bool = False
    last_updated: int = 0
    last_used: int = 0
    version: str = ""
    sha256: str | None = None
    priority: float = 0.0


def should_keep(uses_ms: Sequence[int], priority: float) -> bool:
    """Whether an adapter stays resident: in use with a priority above 0.7, else with one above 0.95.

    Args:
        uses_ms: event times of its uses in rising order; the last two decide.
        priority: 0 to 1.
    """
    in_use = len(uses_ms) >= STAY_USES and uses_ms[-1] - uses_ms[-2] < STAY_GAP_MS
    return priority > (PRIORITY_IN_USE if in_use else PRIORITY_ALWAYS)


@dataclass(frozen=True)
class Heat:
    """How hot each module was over time.

    Attributes:
        modules: rows, in the order given. values: a row a module, a column a time, each in [0, 1].
        source: what it was made of.
    """

    modules: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    source: Literal["gradients", "activity"]

    def rgba(self) -> tuple[tuple[tuple[int, int, int, int], ...], ...]:
        """The same as pixels: black through red and yellow to white, opaque where there is any heat."""
        return tuple(tuple(_pixel(value) for value in row) for row in self.values)


def lora_heat(
    rank: int,
    alpha: float,
    gradients: Mapping[str, Sequence[Sequence[float]]] | None = None,
    activity: Mapping[str, Sequence[float]] | None = None,
) -> Heat:
    """Heat of an adapter's modules: gradient L2 norm where gradients are given, else activity; × alpha / rank.

    It is divided by its greatest value over modules and times, so that heat lies in [0, 1]; all zero stays zero.

    Args:
        rank: at least 1.
        gradients: of each module, one flat gradient a time.
        activity: of each module, one amount a time (requests, tokens).

    Raises:
        ValueError: neither is given, rows differ in length, or a number is no amount.
    """
    if rank < 1:
        raise ValueError(f"rank must be at least 1, not {rank}")
    scale = alpha / rank
    if gradients is not None:
        rows = {module: [math.hypot(*each) * scale for each in times] for module, times in gradients.items()}
    elif activity is not None:
        rows = {module: [amount * scale for amount in times] for module, times in activity.items()}
    else:
        raise ValueError("heat needs gradients or activity")
    if len({len(row) for row in rows.values()}) > 1:
        raise ValueError("every module needs a value for every time")
    amounts = [value for row in rows.values() for value in row]
    if any(not math.isfinite(value) or value < 0 for value in amounts):
        raise ValueError("heat is made of finite amounts of at least 0")
    top = max(amounts, default=0.0) or 1.0
    values = tuple(tuple(value / top for value in row) for row in rows.values())
    return Heat(tuple(rows), values, "activity" if gradients is None else "gradients")


class LoraModule(Struct, frozen=True):
    """Shapes of one module's two matrices."""

    a: tuple[int, ...]
    b: tuple[int, ...]


class LoraStructure(Struct, frozen=True, kw_only=True):
    """What must not change between two releases of an adapter for its requests to go on as before."""

    rank: int
    alpha: float
    dropout: float = 0.0
    target_modules: tuple[str, ...]
    modules: Mapping[str, LoraModule]


class Digest(Struct, frozen=True):
    """A digest of weights and the version that it is of."""

    version: str
    sha256: str


@dataclass(frozen=True)
class ReleaseCheck:
    """Whether a release may be loaded; `differences` names each field that blocks, with both values."""

    ok: bool
    differences: tuple[str, ...]


def lora_release_check(
    old: LoraStructure | None,
    new: LoraStructure,
    loaded: Digest,
    manifest: Digest,
    snapshot: Digest | None = None,
    baseline: Digest | None = None,
) -> ReleaseCheck:
    """Compares a release with what runs, and its digest with the manifest of the same version.

    Args:
        old: what runs; None for a first release.
        loaded, manifest: of the weights at hand and of the manifest. Two versions are never compared by digest: that
            is a finding of its own.
        snapshot, baseline: at a roll-back, the weights that are to come back and the record made of them then.
    """
    found: list[str] = []
    if old is not None:
        for field in ("rank", "alpha", "dropout"):
            found += _differs(field, getattr(old, field), getattr(new, field))
        found += _differs("target_modules", sorted(old.target_modules), sorted(new.target_modules))
        found += [f"modules.{name}: missing in the new release" for name in sorted(set(old.modules) - set(new.modules))]
        found += [f"modules.{name}: missing in the old release" for name in sorted(set(new.modules) - set(old.modules))]
        for name in sorted(set(old.modules) & set(new.modules)):
            for matrix in ("a", "b"):
                before, after = getattr(old.modules[name], matrix), getattr(new.modules[name], matrix)
                found += _differs(f"modules.{name}.{matrix}", list(before), list(after))
    found += _digests("manifest", manifest, loaded)
    if snapshot is not None or baseline is not None:
        if snapshot is None or baseline is None:
            found.append(f"{'snapshot' if snapshot is None else 'baseline'}: missing")
        else:
            found += _digests("baseline", baseline, snapshot)
    return ReleaseCheck(not found, tuple(found))


def _digests(name: str, wanted: Digest, found: Digest) -> list[str]:
    if wanted.version != found.version:
        return _differs(f"{name}.version", wanted.version, found.version)
    return _differs(f"{name}.sha256", wanted.sha256, found.sha256)


def _differs(field: str, old: object, new: object) -> list[str]:
    return [] if old == new else [f"{field}: {old} became {new}"]


def _pixel(value: float) -> tuple[int, int, int, int]:
    red, green, blue = (round(255 * min(1.0, max(0.0, 3 * value - step))) for step in range(3))
    return red, green, blue, 0 if value == 0 else 255
