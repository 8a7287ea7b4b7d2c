"""The bench of growing tenants, in a short form, and the process that plays a size."""

from __future__ import annotations

import pytest

from schemas.errors import StackFault
from stoker.bench import scale
from stoker.bench.scale_play import Played, Size, play

SMALL = Size(tenants=10, keys=120, events=200, window_ms=30_000, span_ms=30_000)


def test_it_plays_the_same_requests_for_one_tenant_and_for_many() -> None:
    one, many = play(Size(1, SMALL.keys, SMALL.events, 30_000, 30_000)), play(SMALL)
    assert one.keys == many.keys == SMALL.keys
    assert one.commands == many.commands > 0
    assert one.by_operator.keys() == many.by_operator.keys()
    for played in (one, many):
        assert min(played.by_operator[name] for name in ("demand", "prefix", "focus", "cluster", "plan")) > 0
        assert played.state_bytes == sum(played.by_operator.values())
        assert played.event_us > 0


def sized(size: Size) -> Played:
    """Twice the time at ten times the tenants from 100 on, one and a half in a tenfold window; state by the key."""
    us = 100.0 * (2 if size.tenants >= 100 else 1) / (1.5 if size.window_ms < scale.WINDOW_MS else 1)
    return Played(us, 300 * size.keys, {"demand": 300 * size.keys}, 1_000 * size.keys, size.keys, 0)


def test_it_judges_each_step_and_the_worst_of_all() -> None:
    figures = {figure.name: figure for figure in scale.compared(1_000, sized).figures}
    assert figures["time_ratio_10x_tenants.100"].value == figures["time_ratio_10x_tenants"].value == 2
    assert figures["time_ratio_10x_tenants"].ok is False
    assert figures["time_ratio_10x_tenants.1000"].ok is figures["state_ratio_10x_tenants.1000"].ok is True
    assert figures["time_ratio_10x_window"].value == pytest.approx(1.5)
    assert figures["state_bytes_per_key"].value == 300 == figures["state_bytes_per_key"].baseline
    assert "event_us.tenants_1000" in figures
    assert "event_us.tenants_10000" not in figures


def test_a_size_that_fails_is_named() -> None:
    with pytest.raises(StackFault, match="of 3 tenants ended with status 1"):
        scale.apart(Size(3, 0, 0, 0, 0))
