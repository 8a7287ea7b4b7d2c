"""Messages of a few kinds from files: JSON lines of any topic, or what `stoker export` wrote."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from schemas import MESSAGES, BrokenConfiguration, PoisonMessage, Target
from schemas.codec import Reader

_PARQUET = b"PAR1"


def messages(paths: Iterable[Path], kinds: tuple[type[msgspec.Struct], ...]) -> Iterator[msgspec.Struct]:
    """All messages of these kinds in files and in folders of files; others are passed over.

    Raises:
        BrokenConfiguration: a file cannot be read.
    """
    for path in _files(paths):
        try:
            with path.open("rb") as file:
                parquet = file.read(4) == _PARQUET
            yield from _rows(path, kinds) if parquet else _lines(path, kinds)
        except (OSError, EOFError) as fault:
            raise BrokenConfiguration(f"--file {path} cannot be read ({fault})") from None


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(each for each in path.iterdir() if each.is_file())
        else:
            yield path


def _lines(path: Path, kinds: tuple[type[msgspec.Struct], ...]) -> Iterator[msgspec.Struct]:
    reader = Reader[msgspec.Struct](*kinds)
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for line in file:
            try:
                yield reader.decode(line.strip())
            except PoisonMessage:
                continue  # a line of another kind, or no message at all


def _rows(path: Path, kinds: tuple[type[msgspec.Struct], ...]) -> Iterator[msgspec.Struct]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    by_tag = {str(kind.__struct_config__.tag): kind for kind in kinds}
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            if "schema" not in schema.names:
                raise BrokenConfiguration(f"--file {path} has no column `schema`: `stoker export` writes such files")
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    kind = by_tag.get(row["schema"])
                    if kind is not None:
                        yield msgspec.convert(_plain(row, pa.struct(list(schema)), row["schema"]), kind)
    except (pa.ArrowInvalid, msgspec.ValidationError) as fault:
        raise BrokenConfiguration(f"--file {path} is no export of a topic ({fault})") from None


def _plain(value: Any, kind: Any, tag: str = "") -> Any:
    """A cell as JSON has it: without what is null, maps as objects, names without their message's in front."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_map(kind):
        return dict(value)
    if pa.types.is_list(kind):
        return [_plain(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        tag = tag or value.get("kind") or ""
        return {
            _own_name(field.name, tag): _plain(value[field.name], field.type)
            for field in kind
            if value[field.name] is not None
        }
    return value


def _own_name(column: str, tag: str) -> str:
    """The name of a column in its message: what two kinds use for different types carries its message's in front."""
    return column if column in _NAMES.get(tag, ()) else column.removeprefix(f"{tag.partition('/')[0]}_")


_NAMES = {str(kind.__struct_config__.tag): frozenset(kind.__struct_fields__) for kind in (*MESSAGES, *get_args(Target))}
"""Fields of every message and every target, by tag."""
