"""The hashes in a message: which of its fields hold one, and the first that is none.

Whether a string of 32 characters is lower-case hex is not said in its type, so that decoding stays quick. Which fields
are of type `Hash`, at any depth, is found once a type.
"""

from __future__ import annotations

from binascii import unhexlify
from functools import cache
from typing import Any, get_args

import msgspec

from schemas.fields import Hash

_HEX_DIGITS = b"0123456789abcdef"


def is_hex(digits: str) -> bool:
    """Whether there is nothing but lower-case hex digits."""
    return not digits.encode().translate(None, _HEX_DIGITS)


def unhexed(digits: str) -> bytes | None:
    """Bytes of pairs of lower-case hex digits; None where there is anything else.

    >>> unhexed("00ff"), unhexed("00FF")
    (b'\x00\xff', None)
    """
    try:
        read = unhexlify(digits)
    except ValueError:
        return None
    # It takes upper-case digits too.
    return read if read.hex() == digits else None


def bad_hash(message: msgspec.Struct) -> str | None:
    """JSON path of the first hash that is not lower-case hex; None where all are.

    >>> from schemas import Embedding
    >>> bad_hash(Embedding(fingerprint="0" * 32, query_sha256="G" * 32))
    '$.query_sha256'
    """
    found: list[str] = []
    _collect(message, found)
    # One pass over all of them; which one is wrong is only asked when one is.
    return None if is_hex("".join(found)) else _bad_path(message, "$")


@cache
def hash_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, bool], ...]:
    """Fields of a struct that hold hashes or structs with hashes: name, name in JSON, and whether it is the hash."""
    found = []
    for field in msgspec.structs.fields(kind):
        if _is_hash(field.type):
            found.append((field.name, field.encode_name, True))
        elif any(hash_fields(inner) for inner in _structs(field.type)):
            found.append((field.name, field.encode_name, False))
    return tuple(found)


def _is_hash(hint: Any) -> bool:
    return bool(hint == Hash) or any(map(_is_hash, get_args(hint)))


def _structs(hint: Any) -> list[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    return [struct for inner in get_args(hint) for struct in _structs(inner)]


def _collect(value: Any, found: list[str]) -> None:
    for name, _, is_hash in hash_fields(value.__class__):
        part = getattr(value, name)
        if part is None:
            continue
        if is_hash:
            found.extend(part) if type(part) is tuple else found.append(part)
        elif type(part) is tuple:
            for item in part:
                _collect(item, found)
        else:
            _collect(part, found)


def _bad_path(value: Any, path: str) -> str | None:
    if isinstance(value, str):
        return None if is_hex(value) else path
    if isinstance(value, tuple):
        inner = ((item, f"{path}[{index}]") for index, item in enumerate(value))
    elif value is None:
        return None
    else:
        inner = ((getattr(value, name), f"{path}.{shown}") for name, shown, _ in hash_fields(value.__class__))
    return next((bad for part, at in inner if (bad := _bad_path(part, at))), None)
