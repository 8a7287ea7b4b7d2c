"""Topics of the embedded stack: made as `schemas.topics` says, and compared with it.

`python -m stoker.stack.topics BOOTSTRAP` makes them anywhere, as docker-compose.yml does; `--production` takes the
partition counts and the replicas of a real cluster, `--config` its login and TLS files.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.errors import StokerError
from schemas.topics import TOPICS, Topic
from stoker.stack import ports

if TYPE_CHECKING:
    from connectors.settings import KafkaSettings

PRODUCTION_REPLICAS = 3


def broker_ready(bootstrap: str) -> bool:
    """Whether the broker on this machine answers and has registered itself, so that topics can be made."""
    if not ports.answers(int(bootstrap.rsplit(":", 1)[1])):
        return False
    from kafka.admin import KafkaAdminClient

    client_log = logging.getLogger("kafka")
    before = client_log.level
    client_log.setLevel(logging.CRITICAL)  # it tells every refused connection while a broker starts
    try:
        with contextlib.closing(
            KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=2_000, bootstrap_timeout_ms=2_000)
        ) as client:
            return bool(client.describe_cluster().get("brokers"))
    except Exception:  # whatever a half-started broker provokes in the client means "not yet"
        return False
    finally:
        client_log.setLevel(before)


def create_topics(
    bootstrap: str,
    prefix: str = "",
    topics: Sequence[Topic] = TOPICS,
    *,
    local: bool = True,
    replication: int = 1,
) -> list[str]:
    """Make the topics that are missing. Existing ones keep their settings: `differences` tells about those.

    Args:
        bootstrap: brokers.
        prefix: put before every name.
        topics: which.
        local: partitions of the embedded stack, else production's.
        replication: copies of each partition.

    Returns:
        The names that were created.

    Raises:
        StackFault: no broker answers.
    """
    from connectors.settings import KafkaSettings

    return _create(KafkaSettings(bootstrap=bootstrap, topic_prefix=prefix), topics, local, replication)


def _create(settings: KafkaSettings, topics: Sequence[Topic], local: bool, replication: int) -> list[str]:
    from connectors.kafka import KafkaAdmin

    with contextlib.closing(KafkaAdmin(settings)) as admin:
        return admin.create(topics, local=local, replication=replication)


def differences(bootstrap: str, prefix: str = "", topics: Sequence[Topic] = TOPICS) -> list[str]:
    """One sentence for every topic that is missing or differs from `schemas.topics`; empty when all is well."""
    from connectors.kafka import KafkaAdmin
    from connectors.settings import KafkaSettings

    settings = KafkaSettings(bootstrap=bootstrap, topic_prefix=prefix)
    with contextlib.closing(KafkaAdmin(settings)) as admin:
        return [str(difference) for difference in admin.check(topics)]


def main() -> int:
    """The command line of this module; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m stoker.stack.topics", description="Make the topics of Stoker.")
    parser.add_argument("bootstrap", nargs="?", help="brokers, host:port; with --config its own by default")
    parser.add_argument("prefix", nargs="?", default="", help="put before every name")
    parser.add_argument("--config", type=Path, help="stoker.toml whose [kafka] section says how to connect")
    parser.add_argument("--production", action="store_true", help="12 partitions and 3 replicas instead of 4 and 1")
    parser.add_argument("--replicas", type=int, help="copies of each partition instead of these")
    given = parser.parse_args()
    if given.bootstrap is None and given.config is None:
        parser.error("name the brokers, or a --config that does")
    replicas = given.replicas or (PRODUCTION_REPLICAS if given.production else 1)
    try:
        made = _create(_settings(given), TOPICS, not given.production, replicas)
    except StokerError as error:
        print(f"topics: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{len(made)} topics created: {', '.join(made) or 'all were there'}")
    return 0


def _settings(given: argparse.Namespace) -> KafkaSettings:
    from connectors.settings import KafkaSettings

    if given.config is None:
        return KafkaSettings(bootstrap=given.bootstrap, topic_prefix=given.prefix)
    from stoker.config import read

    settings = read(given.config).kafka
    named = {"bootstrap": given.bootstrap, "topic_prefix": given.prefix}
    return settings.model_copy(update={key: value for key, value in named.items() if value})


if __name__ == "__main__":
    raise SystemExit(main())
