"""A broker that takes only TLS: by name and password (SCRAM, PLAIN), by certificate, each with its rights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from certificates import KEY_PASSWORD, Authority, Pair
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from connectors.settings import KafkaSettings, SecretRef
from schemas.topics import REQUESTS
from stoker.stack import ports

PASSWORD, WRONG = "scram-pass-77c2", "wrong-pass-1e5b"
AWKWARD = 'plain"pass\\ 5;f3='
"""Nothing in a password is read as anything else, not even by Java's login configuration."""
SETTINGS = {
    "STOKER_TEST_PASSWORD": PASSWORD,
    "STOKER_TEST_WRONG": WRONG,
    "STOKER_TEST_AWKWARD": AWKWARD,
    "STOKER_TEST_KEY": KEY_PASSWORD,
}


@dataclass(frozen=True)
class Broker:
    """Its listeners: `plain` for the test's own set-up, `login` and `certificate` for who is tested."""

    plain: str
    login: str
    certificate: str
    authority: Authority
    client: Pair

    def by_name(self, user: str = "stoker", secret: str = "STOKER_TEST_PASSWORD", **more: Any) -> KafkaSettings:
        given: dict[str, Any] = {
            "bootstrap": self.login,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": user,
            "sasl_password": SecretRef(env=secret),
            "ssl_cafile": self.authority.certificate,
        }
        return KafkaSettings(**(given | more))

    def by_certificate(self, **more: Any) -> KafkaSettings:
        given: dict[str, Any] = {
            "bootstrap": self.certificate,
            "security_protocol": "SSL",
            "ssl_cafile": self.authority.certificate,
            "ssl_certfile": self.client.certificate,
            "ssl_keyfile": self.client.key,
            "ssl_key_password": SecretRef(env="STOKER_TEST_KEY"),
        }
        return KafkaSettings(**(given | more))

    def ways(self) -> dict[str, KafkaSettings]:
        """Each way in."""
        plain = self.by_name("awkward", "STOKER_TEST_AWKWARD", sasl_mechanism="PLAIN")
        return {"scram": self.by_name(), "plain": plain, "certificate": self.by_certificate()}


def secured(authority: Authority, plain: int, controller: int, login: int, certificate: int) -> Mapping[str, str]:
    where = ports.LOOPBACK
    clients = f"PLAINTEXT://{where}:{plain},LOGIN://{where}:{login},CERTIFICATE://{where}:{certificate}"
    quoted = AWKWARD.replace("\\", "\\\\").replace('"', '\\"')
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_awkward="{quoted}";'
    return {
        "listeners": f"{clients},CONTROLLER://{where}:{controller}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_SSL,CERTIFICATE:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.server().both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.certificate.ssl.client.auth": "required",
        "listener.name.login.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.login.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "listener.name.login.plain.sasl.jaas.config": jaas.replace("\\", "\\\\"),  # a properties file unescapes once
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # the broker itself, and this test's set-up
    }


def admit(bootstrap: str) -> None:
    """The rights of docs/deployment.md for `stoker`, the certificate and `awkward`; `reader` reads requests alone."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    for user in ("stoker", "reader"):
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, PASSWORD, iterations=4096)]
        )
    of_topics = (ACLOperation.READ, ACLOperation.WRITE, ACLOperation.CREATE, ACLOperation.DESCRIBE_CONFIGS)
    prefixed = ACLResourcePatternType.PREFIXED
    rules = [("reader", ACLOperation.READ, ResourcePattern(ResourceType.TOPIC, REQUESTS.name))]
    rules += [("reader", ACLOperation.READ, ResourcePattern(ResourceType.GROUP, "reader-", prefixed))]
    for user in ("stoker", "awkward", "CN=stoker-client"):
        for prefix in ("llm.", "warmup."):
            rules += [(user, each, ResourcePattern(ResourceType.TOPIC, prefix, prefixed)) for each in of_topics]
        rules.append((user, ACLOperation.READ, ResourcePattern(ResourceType.GROUP, "stoker-", prefixed)))
    made = admin.create_acls(
        [ACL(f"User:{user}", "*", right, ACLPermissionType.ALLOW, what) for user, right, what in rules]
    )
    assert made["failed"] == []
    admin.close()
