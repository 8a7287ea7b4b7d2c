"""What has to be there before a target: model → adapter → prefix, embedding → response (D15)."""

from __future__ import annotations

from collections.abc import Sequence

from schemas import Adapter, Prefix, Response, Target
from schemas.canonical import adapter_key, adapter_parts, embedding_key, model_key


def needs(target: Target, replicas: Sequence[str]) -> tuple[str, ...]:
    """Keys of the targets that come first, where they are being made ready as well.

    Args:
        replicas: those that the target is for.
    """
    if isinstance(target, Response):
        return (embedding_key(target.fingerprint, target.query_sha256),)
    if not isinstance(target, Prefix | Adapter):
        return ()
    models = tuple(model_key(name) for name in replicas)
    if isinstance(target, Prefix) and target.adapter is not None:
        return (*models, adapter_key(*adapter_parts(target.adapter)))
    return models
