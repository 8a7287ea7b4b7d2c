"""kafka-python's exceptions, sorted into Stoker's error tree: one place decides who is at fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka import errors

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
    if isinstance(fault, _MISCONFIGURED):
        return BrokenConfiguration(f"{text}; check the [kafka] section: login, rights, TLS files")
    if isinstance(fault, errors.UnknownTopicOrPartitionError):
        return StackFault(f"{text}; the topic does not exist: create the topics (`stoker stack up`)")
    if isinstance(fault, _REBALANCED):
        return TransientFault(f"{text}; the group was balanced meanwhile")
    return TransientFault(text)


@contextmanager
def connecting(bootstrap: str) -> Iterator[None]:
    """Sort what a client raises while it looks for its first broker: nobody there is a StackFault."""
    try:
        yield
    except (errors.KafkaTimeoutError, errors.KafkaConnectionError) as fault:
        raise StackFault(
            f"Kafka does not answer at {bootstrap} ({type(fault).__name__}); "
            "start it (`stoker stack up`) or correct the [kafka] section: address, security_protocol, login, TLS files"
        ) from fault
    except errors.KafkaError as fault:
        raise sorted_fault(fault, f"connecting to {bootstrap}") from fault


@contextmanager
def sorted_faults(doing: str) -> Iterator[None]:
    """Turn what kafka-python raises inside the block into Stoker's error tree."""
    try:
        yield
    except errors.KafkaError as fault:
        raise sorted_fault(fault, doing) from fault
