"""Which replicas there are, from settings and sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.configuration import load
from connectors.discovery import Endpoint, FoundReplicas
from executor.roster import Changes, Member, Roster
from executor.settings import LONGEST_NAME, EngineSettings, ExecutorTree
from schemas import BrokenConfiguration

LISTED = EngineSettings(name="r0", url="http://r0", pool="gpu")
SOURCE = FoundReplicas(pool="gpu")


def at(name: str, url: str = "http://x", **fields) -> Endpoint:
    return Endpoint(name, url, **fields)


def names(members: tuple[Member, ...]) -> list[str]:
    return [member.engine.name for member in members]


def test_listed_replicas_stay_and_found_ones_come_and_go() -> None:
    roster = Roster([LISTED], [SOURCE])
    assert roster.names("gpu") == ("r0",)
    assert roster.awaited("gpu")
    assert not roster.awaited("other")
    changes = roster.heard(0, (at("a", zone="z"), at("b")))
    assert (names(changes.joined), roster.names("gpu")) == (["a", "b"], ("r0", "a", "b"))
    assert not roster.awaited("gpu")
    member = roster.get("a")
    assert member is not None
    assert (member.engine.url, member.engine.zone, member.engine.kind) == ("http://x", "z", "vllm")
    assert roster.heard(0, (at("a", zone="z"), at("b"))) == Changes()
    assert names(roster.heard(0, (at("b"),)).left) == ["a"]
    assert names(roster.heard(0, ()).left) == ["b"]
    assert roster.names("gpu") == ("r0",)


def test_what_drains_is_there_and_takes_nothing() -> None:
    roster = Roster([], [SOURCE])
    roster.heard(0, (at("a"), at("b")))
    assert names(roster.heard(0, (at("a", draining=True), at("b"))).turned) == ["a"]
    assert roster.names("gpu") == ("b",)
    assert (roster.takes("a"), roster.takes("b"), roster.takes("c")) == (False, True, False)
    assert roster.get("a") is not None
    assert names(roster.heard(0, (at("a"), at("b"))).turned) == ["a"]
    assert roster.takes("a")


def test_who_may_still_come_is_nobody_that_is_known_and_nobody_without_a_source() -> None:
    roster = Roster([LISTED], [SOURCE])
    roster.heard(0, (at("a", draining=True),))
    assert [roster.may_come(name, "gpu") for name in ("b", "a", "r0", "gpu")] == [True, False, False, False]
    assert not roster.may_come("b", "other")
    assert not Roster([LISTED]).may_come("b", "gpu")


@pytest.mark.parametrize("other", [at("a", "http://y"), at("a", zone="elsewhere")])
def test_the_same_name_somewhere_else_has_moved(other: Endpoint) -> None:
    roster = Roster([], [SOURCE])
    roster.heard(0, (at("a"),))
    changes = roster.heard(0, (other,))
    assert (names(changes.moved), changes.joined, changes.left) == (["a"], (), ())


def test_a_name_that_goes_over_to_another_pool_leaves_and_joins() -> None:
    roster = Roster([], [SOURCE, FoundReplicas(pool="big")])
    roster.heard(0, (at("a"),))
    assert roster.heard(1, (at("a"),)).refused == (("a", "another source has told this name before"),)
    changes = roster.heard(0, ())
    assert [(m.engine.name, m.engine.pool) for m in (*changes.left, *changes.joined)] == [("a", "gpu"), ("a", "big")]


def test_who_cannot_be_used_is_left_out_with_the_reason() -> None:
    roster = Roster([LISTED], [SOURCE])
    changes = roster.heard(0, (at("r0", "http://elsewhere"), at("a" * (LONGEST_NAME + 1)), at("b")))
    assert [name for name, _ in changes.refused] == ["r0", "a" * (LONGEST_NAME + 1)]
    assert names(changes.joined) == ["b"]
    member = roster.get("r0")
    assert member is not None
    assert member.engine == LISTED


def test_settings_of_sources_fit_to_those_of_replicas(tmp_path: Path) -> None:
    def tree(text: str) -> ExecutorTree:
        file = tmp_path / "stoker.toml"
        file.write_text(text)
        return load(ExecutorTree, file)

    dns = '[[executor.discovery.dns]]\nhost = "vllm.internal"\nport = 8000\n'
    assert tree(f'{dns}pool = "gpu"\n').pools == ("gpu", "redis:main")
    with pytest.raises(BrokenConfiguration, match="Redis pool"):
        tree(f'{dns}pool = "redis:main"\n')
    listed = '[[executor.engines]]\nname = "r0"\nurl = "http://x"\npool = "gpu"\n'
    assert tree(f'{listed}{dns}pool = "gpu"\n').executor.engine_pools == ("gpu",)
    with pytest.raises(BrokenConfiguration, match="kinds sglang, vllm"):
        tree(f'{listed}{dns}pool = "gpu"\nkind = "sglang"\n')
