"""kafka-python's exceptions, sorted into Stoker's error tree: one place decides who is at fault."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from kafka import errors

from connectors.kafka.handshake import checked_context, why_refused
from connectors.kafka.last_words import hear_out
from connectors.settings import KafkaSettings
from schemas.errors import BrokenConfiguration, RefusedCommand, StackFault, StokerError, TransientFault

BROKER_REFUSED = "broker_refused"
"""`reason` of a RefusedCommand: the broker will never take this record."""

_REFUSED = (
    errors.MessageSizeTooLargeError,
    errors.RecordListTooLargeError,
    errors.InvalidTimestampError,
    errors.InvalidRecordError,
    errors.PolicyViolationError,
)
_MISCONFIGURED = (
    errors.AuthorizationError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
    errors.InvalidTopicError,
    errors.KafkaConfigurationError,
    errors.UnsupportedVersionError,
    errors.IncompatibleBrokerVersion,
    errors.InvalidReplicationFactorError,
    errors.InvalidConfigurationError,
)
_REFUSED_RIGHTS = ("ClusterAuthorizationFailedError", "TopicAuthorizationFailedError")
"""Names in the text of the plain KafkaError by which kafka-python ends an idempotent producer that has no rights."""
_SEARCHER, _SEARCH = "kafka.net.manager", "_do_bootstrap"
"""Where kafka-python looks for its first broker: logger and function."""
REFUSAL_S = 2.0
"""How long a broker may take to refuse our certificate."""
_REBALANCED = (errors.CommitFailedError, errors.IllegalGenerationError, errors.UnknownMemberIdError)


def sorted_fault(fault: Exception, doing: str) -> StokerError:
    """The fault as one of ours.

    Args:
        fault: what kafka-python raised.
        doing: what was attempted, for the message ("sending to llm.requests").
    """
    text = f"Kafka, {doing}: {type(fault).__name__}: {fault}"
    if isinstance(fault, _REFUSED):
        return RefusedCommand(text, BROKER_REFUSED)
    if isinstance(fault, _MISCONFIGURED) or _without_rights(fault):
        return BrokenConfiguration(f"{text}; check the [kafka] section: login, rights, TLS files")
    if isinstance(fault, errors.UnknownTopicOrPartitionError):
        return StackFault(f"{text}; the topic does not exist: create the topics (`stoker stack up`)")
    if isinstance(fault, _REBALANCED):
        return TransientFault(f"{text}; the group was balanced meanwhile")
    return TransientFault(text)


def _without_rights(fault: Exception) -> bool:
    return type(fault) is errors.KafkaError and any(name in str(fault) for name in _REFUSED_RIGHTS)


class _Refusals(logging.Handler):
    """Ends a client's search for its first broker when a broker refuses the login.

    kafka-python would log in again and again until its time is over, raise a timeout, and tell the reason to its log
    alone. The log line is written in the search itself, so what is raised here ends that and comes out of the client.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Raises what the line tells, if no repetition will change it."""
        if record.funcName == _SEARCH and isinstance(record.args, tuple):
            for told in record.args:
                if isinstance(told, _MISCONFIGURED):
                    raise told


@contextmanager
def _ended_by_refusals() -> Iterator[None]:
    log, handler = logging.getLogger(_SEARCHER), _Refusals(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextmanager
def connecting(settings: KafkaSettings) -> Iterator[None]:
    """Sort what a client raises while it looks for its first broker: nobody there is a StackFault.

    Raises:
        BrokenConfiguration: the TLS files cannot be used, or brokers are there and TLS or the login fails with all.
    """
    bootstrap = settings.bootstrap
    hear_out()
    if settings.uses_tls:
        checked_context(settings)
        _demand_tls(settings)  # now, for kafka-python would try it again and again until its time is over
    try:
        with _ended_by_refusals():
            yield
    except (errors.KafkaTimeoutError, errors.KafkaConnectionError) as fault:
        _demand_tls(settings, refusal_s=REFUSAL_S)
        raise StackFault(
            f"Kafka does not answer at {bootstrap} ({type(fault).__name__}); "
            "start it (`stoker stack up`) or correct the [kafka] section: address, security_protocol, login, TLS files"
        ) from fault
    except errors.KafkaError as fault:
        raise sorted_fault(fault, f"connecting to {bootstrap}") from fault


def _demand_tls(settings: KafkaSettings, refusal_s: float = 0.0) -> None:
    if (why := why_refused(settings, refusal_s=refusal_s)) is not None:
        raise BrokenConfiguration(f"Kafka: {why}")


@contextmanager
def sorted_faults(doing: str) -> Iterator[None]:
    """Turn what kafka-python raises inside the block into Stoker's error tree."""
    try:
        yield
    except errors.KafkaError as fault:
        raise sorted_fault(fault, doing) from fault
