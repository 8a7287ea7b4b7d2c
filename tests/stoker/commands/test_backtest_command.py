"""`stoker backtest` as a stranger would call it."""

from __future__ import annotations

import importlib

import pytest
from typer.testing import CliRunner

from schemas import BrokenConfiguration
from stoker.cli import build
from stoker.commands.backtest import BACKTESTS

RUN = CliRunner()


def test_an_unknown_kind_names_the_known_ones() -> None:
    told = RUN.invoke(build(), ["backtest", "nothing"])
    assert isinstance(told.exception, BrokenConfiguration)
    assert told.exception.exit_code == 2
    assert all(kind in str(told.exception) for kind in BACKTESTS)


@pytest.mark.parametrize("kind", BACKTESTS)
def test_every_kind_has_its_module(kind: str) -> None:
    assert callable(importlib.import_module(f"stoker.backtests.{kind}").run)
