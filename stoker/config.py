"""The whole of `stoker.toml`: the sections of every process in one tree, for the command line and the documentation."""

from __future__ import annotations

from pathlib import Path

from connectors.configuration import load
from connectors.settings import EncoderSettings, KafkaSettings, RedisSettings, Section, TimeScale
from executor.settings import ExecutorSettings
from jobs.settings import ScopeSettings, WarmupSettings


class Settings(Section):
    """Every section. A process of its own reads only those that it needs, by the same loader."""

    time_scale: TimeScale = 1.0
    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()
    encoder: EncoderSettings = EncoderSettings()
    scopes: ScopeSettings = ScopeSettings()
    warmup: WarmupSettings = WarmupSettings()
    executor: ExecutorSettings = ExecutorSettings()


def read(file: Path | None = None) -> Settings:
    """All settings, from `file`, from `stoker.toml` in this folder, or the defaults.

    Raises:
        BrokenConfiguration: with every mistake in a line of its own.
    """
    return load(Settings, file)
