"""The job `warmup` (DESIGN §1): from the topics of requests and executors to commands and insights.

flink run -py jobs/warmup.py -- --config stoker.toml
stoker submit warmup
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs.own_policy import shipped
from jobs.settings import MAX_PARALLELISM, JobSettings, load_settings
from jobs.streams import (
    addressed_type,
    bundles,
    by_address,
    bytes_type,
    data_watermarks,
    keyed_type,
    policy_state,
    policy_watermarks,
    side,
    sink,
    source,
)
from schemas.errors import StokerError
from schemas.topics import (
    ANNOUNCEMENTS,
    COMMANDS,
    DEAD_LETTERS,
    INSIGHTS,
    OUTCOMES,
    POLICY,
    REQUESTS,
    RESIDENCY,
    REWARDS,
    TELEMETRY,
    Topic,
)

JOB = "warmup"
SIGNALS = (REWARDS, TELEMETRY, OUTCOMES, RESIDENCY, ANNOUNCEMENTS)
"""What else moves event time, now and then."""


def build(env: Any, settings: JobSettings) -> None:
    """Adds the whole job to an environment. Every operator has a uid: savepoints find their state by it."""
    from pyflink.common import Types

    from jobs.operators import tags
    from jobs.operators.cluster import ClusterOperator
    from jobs.operators.demand import DemandOperator
    from jobs.operators.embed import EmbedOperator
    from jobs.operators.exits import Exits
    from jobs.operators.focus import FocusOperator
    from jobs.operators.ingest import IngestOperator
    from jobs.operators.plan import PlanOperator
    from jobs.operators.policy import PolicyGate
    from jobs.operators.prefix import PrefixOperator
    from jobs.operators.prompts import PromptsOperator
    from jobs.operators.route import Route
    from jobs.operators.session import SessionOperator

    kafka, config = settings.kafka, settings.to_json()
    warmup = settings.warmup
    group, start = kafka.group(JOB), warmup.start
    data, row, number = bytes_type(), keyed_type(), Types.INT()
    addressed = addressed_type()

    policy_records = env.from_source(
        source(kafka, (POLICY,), f"{group}-policy", "earliest"), policy_watermarks(), "policy"
    ).uid("policy")
    gate = policy_records.process(PolicyGate(kafka.topic(POLICY)), data).uid("policy-gate").name("policy-gate")
    policy = gate.broadcast(policy_state())

    def read(topics: Sequence[Topic], idle_ms: int, name: str, reader: str) -> Any:
        data_source = source(kafka, topics, group, start, f"{group}-{name}")
        slots = "ingest" if warmup.ingest_apart else "default"
        records = env.from_source(data_source, data_watermarks(settings.timing, idle_ms), name).uid(name)
        records = records.slot_sharing_group(slots)
        if warmup.bundled:
            records = bundles(records, warmup.bundle_records, warmup.bundle_wait_ms)
            records = records.uid(f"bundle-{name}").name(f"bundle-{name}")
        facts = records.process(IngestOperator(config), addressed_type(number)).uid(reader).name(reader)
        return facts.slot_sharing_group(slots)

    # Whether a partition is quiet or only slow to come cannot be told: requests are waited for longer than what speaks
    # now and then, which would hold event time back by as much each time.
    requests = read((REQUESTS,), settings.timing.requests_idle_ms, "requests", "ingest")
    signals = read(SIGNALS, settings.timing.idle_ms, "signals", "ingest-signals")
    ingest = requests.union(signals)
    demand = by_address(ingest, number).connect(policy).process(DemandOperator(config), data)
    routing = Route(settings.redis.pool_key, warmup.embed_shards)
    route = demand.uid("demand").name("demand").process(routing, addressed).uid("route").name("route")

    prefix = by_address(side(route, tags.DELTAS)).process(PrefixOperator(config), addressed)
    prefix = prefix.uid("prefix").name("prefix")

    # Counts with native code, as embed and cluster do.
    focus = by_address(side(route, tags.ASKED)).process(FocusOperator(config), addressed)
    focus = focus.uid("focus").name("focus").disable_chaining()

    embed = by_address(side(route, tags.EMBEDS), number).process(EmbedOperator(config), addressed)
    # Alone in its thread, as every operator that calls native code must be: a library that asks for the thread's Python
    # state gets that of the first operator chained there, and waits for ever for the lock that this one holds.
    embed = embed.uid("embed").name("embed").disable_chaining()

    for_cluster = side(embed, tags.VECTORS).union(side(route, tags.COUNTS))
    cluster = by_address(for_cluster).process(ClusterOperator(config), addressed)
    cluster = cluster.uid("cluster").name("cluster").disable_chaining()

    def read_aside(tag: Any) -> Any:
        return side(requests, tag).union(side(signals, tag))

    session = by_address(side(requests, tags.TURNS)).process(SessionOperator(config), addressed)
    session = session.uid("session").name("session").slot_sharing_group("default")
    prompts = by_address(read_aside(tags.PROMPTED)).process(PromptsOperator(config), addressed)
    prompts = prompts.uid("prompts").name("prompts").slot_sharing_group("default")

    for_plan = route.union(prefix, focus, embed, cluster, session, prompts, read_aside(tags.CONTROL))
    plan = by_address(for_plan).connect(policy).process(PlanOperator(config), data)
    exits = plan.uid("plan").name("plan").process(Exits(), row).uid("exits").name("exits")

    insights = side(route, tags.INSIGHTS).union(*(side(each, tags.INSIGHTS) for each in (focus, cluster, exits)))
    dead = read_aside(tags.DEAD).union(side(gate, tags.DEAD))
    exits.sink_to(sink(kafka, COMMANDS)).uid("commands").name("commands")
    insights.sink_to(sink(kafka, INSIGHTS)).uid("insights").name("insights")
    dead.sink_to(sink(kafka, DEAD_LETTERS)).uid("dead-letters").name("dead-letters")


def environment(settings: JobSettings, parallelism: int | None) -> Any:
    """Flink's environment: thread mode, 720 key groups, and checkpoints where the cluster sets none."""
    from pyflink.common import Configuration
    from pyflink.datastream import CheckpointingMode, StreamExecutionEnvironment

    configuration = Configuration()
    configuration.set_string("python.execution-mode", "thread")
    # Shards end their slides one after the other (`JobSettings.slide_spread_ms`): event time must move in small steps.
    configuration.set_string("pipeline.auto-watermark-interval", "50 ms")
    # What flows is bytes that nobody changes: no operator needs a copy of its own.
    configuration.set_string("pipeline.object-reuse", "true")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_max_parallelism(MAX_PARALLELISM)
    if parallelism is not None:
        env.set_parallelism(parallelism)
    if env.get_checkpoint_config().get_checkpoint_interval() <= 0:
        env.enable_checkpointing(settings.warmup.checkpoint_ms, CheckpointingMode.EXACTLY_ONCE)
    if settings.warmup.connector_jars:
        env.add_jars(*(jar.absolute().as_uri() for jar in settings.warmup.connector_jars))
    own_policy = shipped(settings.warmup.own_policy)
    if own_policy is not None:
        env.add_python_file(str(own_policy))
    return env


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds and submits the job. Returns an exit code."""
    parser = argparse.ArgumentParser(prog="warmup", description="Submits the job warmup to Flink.")
    parser.add_argument("--config", type=Path, help="a stoker.toml; the environment goes before it")
    parser.add_argument("--parallelism", type=int, help="else the cluster's default")
    given = parser.parse_args(arguments)
    try:
        settings = load_settings(given.config)
    except StokerError as error:
        print(f"warmup: {error}", file=sys.stderr)
        return error.exit_code
    env = environment(settings, given.parallelism)
    build(env, settings)
    env.execute(JOB)
    return 0


if __name__ == "__main__":
    sys.exit(main())
