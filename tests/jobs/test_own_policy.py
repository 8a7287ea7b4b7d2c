"""`warmup.own_policy`: what may be named there, what is refused in words, and that it changes what the job plans."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from analytics.policy import ExperimentPolicy, PlanPolicy, PolicyBook, PolicyDefaults
from jobs.own_policy import load_own_policy, located, shipped
from jobs.settings import JobSettings, WarmupSettings, load_settings
from schemas import BrokenConfiguration, ReplicaSample, WarmupCommand, encode
from stoker.local_job import LocalJob
from stoker.replay.generated import GeneratedConfig, generated
from stoker.replay.offline import OfflineConfig, offline
from stoker.replay.turns import until

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_policy.py"
NAME = f"{EXAMPLE}:NoticeableFirst"
MINE = """
from dataclasses import dataclass

@dataclass
class Mine:
    factor: float = 2.0

    def density(self, proposal):
        return self.factor * proposal.density

class Mute:
    pass

class Deaf:
    def density(self):
        return 1.0

class Picky:
    def __init__(self, name):
        pass

    def density(self, proposal):
        return 1.0

half = Mine(0.5)
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return file


def test_a_class_of_a_file_or_of_a_module_is_a_policy(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_own_policy(f"{mine}:Mine").factor == 2.0  # type: ignore[attr-defined]
    # On a TaskManager of another machine the file is a module, where Flink has put it.
    monkeypatch.syspath_prepend(str(mine.parent))
    assert type(load_own_policy("elsewhere/mine.py:Mine")).__module__ == "mine"
    assert type(load_own_policy("mine:Mine")).__module__ == "mine"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("{}/none.py:Mine", "there is no file .*none.py"),
        ("no_such_module:Mine", "there is no module no_such_module"),
        ("{}/mine.py:Theirs", "has no class Theirs"),
        ("{}/mine.py:half", "has no class half"),
        ("{}/mine.py:Mute", "is no policy: it needs density"),
        ("{}/mine.py:Deaf", "is no policy: it needs density"),
        ("{}/mine.py:Picky", "Picky.. raises TypeError"),
        ("{}/wrong.py:Mine", "raises SyntaxError"),
        ("{}/needy.py:Mine", "needs no_such_library, which is not installed"),
    ],
)
def test_what_is_no_policy_is_refused_in_words(mine: Path, name: str, words: str) -> None:
    (mine.parent / "wrong.py").write_text("class")
    (mine.parent / "needy.py").write_text("import no_such_library")
    with pytest.raises(BrokenConfiguration, match=rf"warmup\.own_policy: .*{words}"):
        load_own_policy(name.format(mine.parent))


def test_a_submission_loads_it_and_names_its_file_wherever_a_process_runs(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "stoker.toml"
    file.write_text('[warmup]\nown_policy = "mine.py:Mine"\n')
    monkeypatch.chdir(tmp_path)
    settings = load_settings(file)
    assert settings.warmup.own_policy == f"{mine}:Mine"
    assert shipped(settings.warmup.own_policy) == mine
    own = JobSettings.from_json(settings.to_json()).planning().own
    assert type(own).__name__ == "Mine"
    file.write_text('[warmup]\nown_policy = "mine.py:Theirs"\n')
    with pytest.raises(BrokenConfiguration, match="no class Theirs"):
        load_settings(file)
    file.write_text('[warmup]\nown_policy = "mine.py"\n')
    with pytest.raises(BrokenConfiguration, match=r"warmup\.own_policy"):
        load_settings(file)


def test_only_a_file_is_shipped() -> None:
    assert located("package.module:Class") == "package.module:Class"
    assert shipped("package.module:Class") is None
    assert shipped(None) is None
    assert JobSettings().planning().own is None


def planned(own_policy: str | None) -> list[WarmupCommand]:
    """The prefixes that the job commands in a minute of a small workload."""
    settings = JobSettings(warmup=WarmupSettings(own_policy=own_policy))
    defaults = PolicyDefaults(plan=PlanPolicy(embeddings=False), experiment=ExperimentPolicy(hold_share=0.0))
    job, config = LocalJob(settings, PolicyBook(defaults)), OfflineConfig()
    sampled_ms = config.start_ms
    turns = until(generated(GeneratedConfig(requests_per_s=6, seed=3)), 60_000)
    for event in offline(turns, config):
        while sampled_ms <= event.event_time_ms:
            sample = ReplicaSample(
                replica="r0", pool=config.pool, incarnation="1", sampled_at_ms=sampled_ms, state="ready"
            )
            job.on_record(encode(sample), sampled_ms)
            sampled_ms += 1_000
        job.on_record(encode(event), event.event_time_ms)
    return [msgspec.json.decode(record, type=WarmupCommand) for record in job.topics.commands]


def test_the_example_changes_what_the_job_plans() -> None:
    built_in, own = planned(None), planned(NAME)
    ranked = [command for command in own if command.reason.trigger == "hot_prefix"]
    assert len(ranked) > 3
    assert all(command.benefit.saved_ms >= 45.0 for command in ranked)
    assert any(command.benefit.saved_ms < 45.0 for command in built_in)
    assert all(
        command.reason.evidence["own_density"]
        == pytest.approx(command.benefit.p_asked * command.benefit.p_absent * command.benefit.saved_ms)
        for command in ranked
    )


def test_the_page_shows_the_example_and_it_is_no_longer_than_a_policy_should_be() -> None:
    page, code = (EXAMPLE.parents[1] / "docs" / "policies.md").read_text(), EXAMPLE.read_text()
    (shown,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert code.endswith(shown)
    assert len([line for line in shown.splitlines() if line.strip()]) <= 20
