"""The columns of a topic's messages: their fields, nested where the messages are.

A topic or a field with several kinds of message is one set of columns: each kind's own are null in the rows of the
others, and `schema` (or `kind`) says which it is. Where two kinds use one name for different types, the name is put
behind its message's (`pattern_state`). What has the class `text`, and raw bytes, which may be text, is left out unless
it is asked for. Bodies without a type of their own are JSON texts.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect

Value = Callable[[Any], Any]


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        type: pyarrow's.
        value: of a message, or of what the column is nested in; None where it has none.
    """

    name: str
    type: Any
    value: Value


def columns_of(kinds: Sequence[type[msgspec.Struct]], with_text: bool) -> list[Column]:
    """The columns of messages of these kinds, in the order of their fields."""
    infos = [inspect.type_info(kind) for kind in kinds]
    structs = [info for info in infos if isinstance(info, inspect.StructType)]
    return _merged(structs, with_text)


def _merged(structs: Sequence[inspect.StructType], with_text: bool) -> list[Column]:
    import pyarrow as pa

    found: list[Column] = []
    if structs[0].tag_field is not None:
        tags = {struct.cls: str(struct.tag) for struct in structs}
        found.append(Column(structs[0].tag_field, pa.string(), lambda message: tags[type(message)]))
    parts: dict[str, list[tuple[inspect.StructType, Any, Value]]] = {}
    for struct in structs:
        for field in struct.fields:
            made = _typed(field.type, with_text)
            if made is not None:
                parts.setdefault(field.encode_name, []).append((struct, *made))
    for name, held in parts.items():
        if all(each[1] == held[0][1] for each in held):
            found.append(Column(name, held[0][1], _of_field(name, {each[0].cls: each[2] for each in held})))
            continue
        for struct, kind, value in held:
            own = f"{str(struct.tag).partition('/')[0]}_{name}"
            found.append(Column(own, kind, _of_field(name, {struct.cls: value})))
    return found


def _of_field(name: str, values: dict[type, Value]) -> Value:
    """Reads a field of the kinds that have it."""

    def read(message: Any) -> Any:
        value = values.get(type(message))
        return None if value is None else value(getattr(message, name))

    return read


def _typed(info: inspect.Type, with_text: bool) -> tuple[Any, Value] | None:
    """Type and reader of a field; None where it is left out."""
    import pyarrow as pa

    if isinstance(info, inspect.Metadata):
        text = (info.extra_json_schema or {}).get("x-class") == "text"
        return None if text and not with_text else _typed(info.type, with_text)
    if isinstance(info, inspect.UnionType):
        return _union([each for each in info.types if not isinstance(each, inspect.NoneType)], with_text)
    if isinstance(info, inspect.StructType):
        return _struct([info], with_text)
    if isinstance(info, inspect.VarTupleType | inspect.ListType):
        inner = _typed(info.item_type, with_text)
        return None if inner is None else (pa.list_(inner[0]), _each(inner[1]))
    if isinstance(info, inspect.BytesType):
        return (pa.binary(), _same) if with_text else None
    if isinstance(info, inspect.DictType):
        return _mapping(info, with_text)
    if isinstance(info, inspect.EnumType):
        return pa.string(), _enum
    for kinds, plain in _PLAIN:
        if isinstance(info, kinds):
            return getattr(pa, plain)(), _same
    return pa.string(), _json


_PLAIN: tuple[tuple[tuple[type, ...], str], ...] = (
    ((inspect.BoolType,), "bool_"),
    ((inspect.IntType,), "int64"),
    ((inspect.FloatType,), "float64"),
    ((inspect.StrType, inspect.LiteralType), "string"),
)


def _union(infos: Sequence[inspect.Type], with_text: bool) -> tuple[Any, Value] | None:
    if len(infos) == 1:
        return _typed(infos[0], with_text)
    import pyarrow as pa

    structs = [info for info in infos if isinstance(info, inspect.StructType)]
    if len(structs) != len(infos):
        return pa.string(), _json
    return _struct(structs, with_text)


def _struct(structs: Sequence[inspect.StructType], with_text: bool) -> tuple[Any, Value]:
    import pyarrow as pa

    columns = _merged(structs, with_text)

    def read(value: Any) -> Any:
        return None if value is None else {column.name: column.value(value) for column in columns}

    return pa.struct([(column.name, column.type) for column in columns]), read


def _mapping(info: inspect.DictType, with_text: bool) -> tuple[Any, Value] | None:
    """A map where its values have one type; a body of anything is JSON."""
    import pyarrow as pa

    inner = _typed(info.value_type, with_text)
    if inner is None:
        return None
    value_of = inner[1]
    if value_of is _json:
        return pa.string(), _json
    return pa.map_(
        pa.string(), inner[0]
    ), lambda value: None if value is None else [(key, value_of(each)) for key, each in value.items()]


def _each(value: Value) -> Value:
    return lambda values: None if values is None else [value(each) for each in values]


def _same(value: Any) -> Any:
    return value


def _enum(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _json(value: Any) -> Any:
    return None if value is None else msgspec.json.encode(value).decode()
