"""One running Stoker, what may be killed of it, and the rules that hold at its end whatever was killed when."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from connectors.settings import EncoderSettings, RedisSettings
from jobs.settings import JobSettings, ScopeSettings, WarmupSettings
from schemas import Prefix, WarmupOutcome
from schemas.canonical import outcome_id
from stoker.demo.announced import LOADER, write_prices
from stoker.stack.process import Process, sweep
from tests.e2e.asking import TENANTS
from tests.executor.town import Town
from tests.jobs.deployment import LATENESS_MS, Deployment, paced
from tests.jobs.traffic import Mix

TIME_SCALE = 10.0
RATE_PER_S = 40.0
PATIENCE_S = 600.0
BLOCK_TOKENS = 16


class Job(Deployment):
    """The job as it is where an executor runs: that one's samples move event time."""

    def heartbeat(self) -> None:
        """Sends nothing: a replica of the test's own would be warmed too."""


class Whole:
    """Job, executor and two engines.

    Args:
        bootstrap, redis_url: the services.
        folder: for settings, logs and Flink's state.
        encoder: folder of the model.
    """

    def __init__(self, bootstrap: str, redis_url: str, folder: Path, encoder: Path) -> None:
        self.town = Town(bootstrap, redis_url, folder, ["--prefill-ms-per-token", "2"])
        settings = JobSettings(
            kafka=self.town.kafka,
            redis=RedisSettings(url=redis_url),
            encoder=EncoderSettings(model=encoder),
            scopes=ScopeSettings(tenants={tenant: tenant for tenant in TENANTS}),
            time_scale=TIME_SCALE,
            warmup=WarmupSettings(
                idle_ms=2_000,
                requests_idle_ms=2_000,
                lateness_ms=round(LATENESS_MS * TIME_SCALE),
                prefix_absent_rule="spec",  # no request meets these engines: their counters say that all is kept
            ),
        )
        self.job = Job(settings, self.town.state)
        prices = folder / "prices.sqlite"
        write_prices(prices)
        self.town.more_settings += ["[[executor.sql_loaders]]", f'name = "{LOADER}"', 'scopes = ["*"]']
        self.town.more_settings += [
            f'dsn = "{prices}"',
            'query = "SELECT sku, price FROM prices WHERE sku IN ({keys})"',
        ]
        self.executor: Process | None = None

    def start(self) -> None:
        """The job at parallelism 2, and an executor."""
        self.start_executor(wait=False)
        self.job.at(2)
        assert self.executor is not None
        executor = self.executor
        executor.wait_ready(lambda: self.town.readyz(executor), PATIENCE_S)

    def start_executor(self, wait: bool = True) -> None:
        """A new executor in the place of the last one; patient, for as long as Redis or Kafka may take to come back."""
        self.executor = self.town.executor(wait=False, time_scale=TIME_SCALE, attempts=20, backoff_ms=200)
        if wait:
            executor = self.executor
            executor.wait_ready(lambda: self.town.readyz(executor), PATIENCE_S)

    def kill_executor(self) -> None:
        """kill -9."""
        assert self.executor is not None
        self.executor.kill()

    def close(self) -> None:
        """Ends every process of it."""
        self.job.close()
        self.town.close()
        sweep(self.town.state)

    @contextmanager
    def asked(self, mix: Mix) -> Iterator[None]:
        """Requests go in while the block runs."""
        over = threading.Event()

        def feed() -> None:
            while not over.is_set():
                for at_ms in paced(RATE_PER_S, 1.0):
                    record, record_ms = mix.record(at_ms)
                    self.job.send(record, at_ms=record_ms)

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            yield
        finally:
            over.set()
            feeder.join()

    def wait_applied(self, after_ms: int, what: str) -> None:
        """Waits until a prefix and an embedding that were commanded after a time are applied."""

        def kinds() -> set[bool]:
            late = {name for name, c in self.job.outputs.commands.items() if c.issued_at_ms > after_ms}
            found = [outcome for outcomes in self.job.outputs.outcomes.values() for outcome in outcomes]
            return {o.pool == "gpu" for o in found if o.status == "applied" and o.command_id in late}

        self.job.wait(lambda: kinds() == {True, False}, f"warm-ups after {what}", PATIENCE_S)

    def settle(self) -> dict[str, int]:
        """Waits until every request is accounted for and every command answered, and checks the answers.

        Returns:
            Requests by fate.
        """
        fates = self.job.settle()
        self.job.wait(lambda: not self.unanswered(), "an outcome of every command on every replica", PATIENCE_S)
        self.check_outcomes()
        self.check_tokens()
        return fates

    def unanswered(self) -> set[tuple[str, str]]:
        """Commands and replicas without an outcome."""
        wanted = {
            (command.command_id, replica)
            for command in self.job.outputs.commands.values()
            for replica in (command.replicas.names or (command.pool,))
        }
        return wanted - {(found[0].command_id, found[0].replica) for found in self.job.outputs.outcomes.values()}

    def check_outcomes(self) -> None:
        """One terminal outcome of a command on a replica, however often it was told."""
        for identity, told in self.job.outputs.outcomes.items():
            assert identity == outcome_id(told[0].command_id, told[0].replica)
            assert {(outcome.command_id, outcome.replica) for outcome in told} == {
                (told[0].command_id, told[0].replica)
            }
            assert len({outcome.status for outcome in told}) == 1, _shown(told)
            assert told[0].command_id in self.job.outputs.commands

    def check_tokens(self) -> None:
        """No token of a target was created twice on a replica: the engines are large, nothing has left them."""
        made = self.requests()
        created: dict[tuple[str, str], int] = defaultdict(int)
        whole: dict[tuple[str, str], int] = {}
        for command in self.job.outputs.commands.values():
            if not isinstance(command.target, Prefix):
                continue
            for replica in command.replicas.names or ():
                for entry in made.get((replica, command.command_id), ()):
                    place = (replica, command.target_key)
                    created[place] += entry["created_tokens"]
                    whole[place] = entry["prompt_tokens"] // BLOCK_TOKENS * BLOCK_TOKENS
        twice = {place: (tokens, whole[place]) for place, tokens in created.items() if tokens > whole[place]}
        assert not twice, twice

    def requests(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """What the engines were asked, by replica and command."""
        found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for name, engine in self.town.engines.items():
            answer = httpx.get(f"{engine.config.url}/sim/ledger", timeout=60, trust_env=False)
            for entry in answer.json():
                found[name, entry["request_id"].removeprefix("warmup-")].append(entry)
        return found


def _shown(told: list[WarmupOutcome]) -> str:
    return "; ".join(f"{o.finished_at_ms} {o.status} {o.reason} {o.error}" for o in told)
