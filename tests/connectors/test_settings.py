"""Settings of the outside world: what is refused, what is never shown."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from annotated_types import Ge, Le
from pydantic import ValidationError

from connectors.settings import EncoderSettings, KafkaSettings, RedisSettings, SecretRef, Section
from schemas.errors import BrokenConfiguration
from schemas.topics import REQUESTS

SECTIONS = [KafkaSettings, RedisSettings, EncoderSettings]


@pytest.mark.parametrize("section", SECTIONS)
def test_defaults_are_valid_and_frozen(section: type[Section]) -> None:
    settings = section()
    with pytest.raises(ValidationError):
        setattr(settings, next(iter(section.model_fields)), "other")


@pytest.mark.parametrize("section", SECTIONS)
def test_unknown_key_is_an_error(section: type[Section]) -> None:
    with pytest.raises(ValidationError, match="bootstrapp"):
        section.model_validate({"bootstrapp": "x"})


@pytest.mark.parametrize(
    ("name", "field"), [(f"{s.__name__}.{n}", f) for s in [*SECTIONS, SecretRef] for n, f in s.model_fields.items()]
)
def test_every_key_says_what_it_is_and_every_number_has_a_range(name: str, field) -> None:
    assert field.description, name
    assert field.description.endswith("."), name
    if field.annotation is int:
        bounds = [b for b in field.metadata if isinstance(b, Ge | Le)]
        assert len(bounds) == 2, f"{name} needs ge and le"
        for bound in bounds:
            number = bound.ge if isinstance(bound, Ge) else bound.le
            assert f"{number:,}" in field.description, f"{name}: the description must give the range"
            assert math.isfinite(number)


def test_secret_is_a_reference_to_one_place(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    assert SecretRef(env="NAME").reveal({"NAME": "s3cret"}) == "s3cret"
    assert SecretRef(file=file).reveal() == "s3cret"
    assert SecretRef.model_validate("env:NAME") == SecretRef(env="NAME")
    assert SecretRef.model_validate(f"file:{file}") == SecretRef(file=file)
    for wrong in ({}, {"env": "A", "file": "b"}, {"env": ""}, "plain", "http://x"):
        with pytest.raises(ValidationError):
            SecretRef.model_validate(wrong)


def test_missing_secret_names_its_place(tmp_path: Path) -> None:
    with pytest.raises(BrokenConfiguration, match="PASSWORD_OF_KAFKA"):
        SecretRef(env="PASSWORD_OF_KAFKA").reveal({})
    with pytest.raises(BrokenConfiguration, match="nowhere"):
        SecretRef(file=tmp_path / "nowhere").reveal()
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(BrokenConfiguration, match="is empty"):
        SecretRef(file=tmp_path / "empty").reveal()


def test_secret_written_in_the_wrong_place_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError) as fault:
        RedisSettings.model_validate({"password": "hunter2"})
    assert "hunter2" not in str(fault.value)
    with pytest.raises(ValidationError) as fault:
        RedisSettings(url="redis://:hunter2@host:6379/0")
    assert "hunter2" not in str(fault.value)
    monkeypatch.setenv("REDIS_PASSWORD", "hunter2")
    settings = RedisSettings(password=SecretRef(env="REDIS_PASSWORD"))
    assert "hunter2" not in repr(settings) + str(settings) + settings.model_dump_json()


@pytest.mark.parametrize(
    "wrong",
    [
        {"security_protocol": "SASL_SSL"},
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "u"},
        {"sasl_username": "u"},
        {"ssl_cafile": "ca.pem"},
        {"security_protocol": "SSL", "ssl_certfile": "c.pem"},
        {"security_protocol": "TLS"},
        {"topic_prefix": "a b"},
        {"group_prefix": ""},
        {"bootstrap": ""},
        {"linger_ms": -1},
        {"request_timeout_ms": 30_000, "delivery_timeout_ms": 20_000},
    ],
)
def test_kafka_settings_that_contradict_themselves_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        KafkaSettings.model_validate(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://host"},
        {"url": "redis://user@host"},
        {"tls_cafile": "ca.pem"},
        {"tls_certfile": "c.pem", "tls_keyfile": "k.pem"},
        {"url": "rediss://host", "tls_certfile": "c.pem"},
        {"username": "u"},
        {"pool": "a:b"},
        {"timeout_ms": 0},
    ],
)
def test_redis_settings_that_contradict_themselves_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RedisSettings.model_validate(wrong)


def test_names_on_the_broker() -> None:
    settings = KafkaSettings(topic_prefix="staging.", group_prefix="stoker-staging")
    assert settings.topic(REQUESTS) == "staging.llm.requests"
    assert settings.group("executor") == "stoker-staging-executor"
    assert RedisSettings(pool="eu").pool_key == "redis:eu"
