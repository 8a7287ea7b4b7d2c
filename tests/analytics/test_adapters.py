"""The spec rules of D12, each against numbers worked by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from analytics.adapters import (
    AdapterRecord,
    Digest,
    LoraModule,
    LoraStructure,
    lora_heat,
    lora_release_check,
    should_keep,
)


@pytest.mark.parametrize(
    ("uses_ms", "priority", "keep"),
    [
        ((0, 29_999), 0.71, True),
        ((0, 29_999), 0.7, False),  # strict: 0.7 is not above 0.7
        ((0, 30_000), 0.8, False),  # a gap of 30 s is no use, and 0.8 is not above 0.95
        ((0, 30_000), 0.96, True),
        ((0, 100_000, 110_000), 0.8, True),  # only the last gap counts
        ((0, 10_000, 110_000), 0.8, False),
        ((5,), 0.8, False),  # one use has no gap
        ((5,), 0.951, True),
        ((), 0.95, False),
        ((), 1.0, True),
    ],
)
def test_who_stays(uses_ms: tuple[int, ...], priority: float, keep: bool) -> None:
    assert should_keep(uses_ms, priority) is keep


def test_the_record_has_the_spec_s_fields() -> None:
    assert [field.name for field in msgspec.structs.fields(AdapterRecord)] == [
        "adapter_name",
        "rank",
        "alpha",
        "dropout",
        "target_modules",
        "merged",
        "last_updated",
        "last_used",
        "version",
        "sha256",
        "priority",
    ]


def test_heat_is_the_gradients_norm_times_alpha_over_rank_over_its_greatest() -> None:
    # |(3, 4)| = 5, |(0, 0)| = 0, |(6, 8)| = 10, |(0, 1)| = 1; × 16/8 = 10, 0, 20, 2; over 20.
    heat = lora_heat(8, 16.0, gradients={"q": [[3.0, 4.0], [0.0, 0.0]], "v": [[6.0, 8.0], [0.0, 1.0]]})
    assert heat.modules == ("q", "v")
    assert heat.source == "gradients"
    assert heat.values == ((0.5, 0.0), (1.0, 0.1))
    assert heat.rgba()[1][0] == (255, 255, 255, 255)
    assert heat.rgba()[0][1] == (0, 0, 0, 0)
    assert heat.rgba()[0][0] == (255, 128, 0, 255)  # 0.5: red is full at a third, yellow half way at a half


def test_without_gradients_activity_is_the_heat() -> None:
    heat = lora_heat(4, 8.0, activity={"q": [2.0, 4.0], "v": [0.0, 1.0]})
    assert heat.source == "activity"
    assert heat.values == ((0.5, 1.0), (0.0, 0.25))
    assert lora_heat(4, 8.0, activity={"q": [0.0]}).values == ((0.0,),)


@pytest.mark.parametrize(
    "wrong",
    [{}, {"activity": {"q": [1.0], "v": [1.0, 2.0]}}, {"activity": {"q": [-1.0]}}, {"activity": {"q": [float("nan")]}}],
    ids=["nothing", "ragged", "negative", "nan"],
)
def test_heat_of_what_is_no_amount_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"heat|module"):
        lora_heat(4, 8.0, **wrong)


def structure(**changes: Any) -> LoraStructure:
    fields: dict[str, Any] = {
        "rank": 8,
        "alpha": 16.0,
        "dropout": 0.05,
        "target_modules": ("q_proj", "v_proj"),
        "modules": {"l0.q": LoraModule((8, 64), (64, 8)), "l0.v": LoraModule((8, 64), (64, 8))},
    }
    return LoraStructure(**{**fields, **changes})


V2 = Digest("2", "aa")


def test_an_equal_structure_with_its_own_digest_passes() -> None:
    same = structure(target_modules=("v_proj", "q_proj"))  # a set, in whatever order
    assert lora_release_check(structure(), same, V2, V2).ok
    assert lora_release_check(None, structure(), V2, V2).ok


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"rank": 16}, "rank: 8 became 16"),
        ({"alpha": 32.0}, "alpha: 16.0 became 32.0"),
        ({"dropout": 0.0}, "dropout: 0.05 became 0.0"),
        ({"target_modules": ("q_proj",)}, "target_modules: ['q_proj', 'v_proj'] became ['q_proj']"),
        (
            {"modules": {"l0.q": LoraModule((8, 64), (64, 8)), "l0.v": LoraModule((8, 32), (64, 8))}},
            "modules.l0.v.a: [8, 64] became [8, 32]",
        ),
        ({"modules": {"l0.q": LoraModule((8, 64), (64, 8))}}, "modules.l0.v: missing in the new release"),
    ],
)
def test_what_differs_is_named(changes: dict[str, Any], difference: str) -> None:
    check = lora_release_check(structure(), structure(**changes), V2, V2)
    assert (check.ok, check.differences) == (False, (difference,))


def test_a_module_that_only_the_new_release_has_blocks_too() -> None:
    old = structure(modules={"l0.q": LoraModule((8, 64), (64, 8))})
    assert lora_release_check(old, structure(), V2, V2).differences == ("modules.l0.v: missing in the old release",)


def test_digests_are_compared_within_one_version_only() -> None:
    wrong = lora_release_check(None, structure(), Digest("2", "bb"), V2)
    assert wrong.differences == ("manifest.sha256: aa became bb",)
    # Another version's digest would differ by right: what is wrong is the version.
    other = lora_release_check(None, structure(), Digest("1", "bb"), V2)
    assert other.differences == ("manifest.version: 2 became 1",)


def test_a_roll_back_compares_the_snapshot_with_its_recorded_baseline() -> None:
    baseline = Digest("1", "cc")
    assert lora_release_check(None, structure(), V2, V2, Digest("1", "cc"), baseline).ok
    bad = lora_release_check(None, structure(), V2, V2, Digest("1", "dd"), baseline)
    assert bad.differences == ("baseline.sha256: cc became dd",)
    assert lora_release_check(None, structure(), V2, V2, baseline=baseline).differences == ("snapshot: missing",)
