"""Reading `stoker.toml`: file, environment (`STOKER_SECTION__KEY`) and flags, in rising order, into one typed tree.

A process declares the sections that it reads as fields of a `Root`. What is wrong is told once, all of it, with the
place, the allowed values and the nearest known key; a value is never repeated, since it may be a misplaced secret.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from schemas.errors import BrokenConfiguration

DEFAULT_FILE = Path("stoker.toml")
ENV_PREFIX = "STOKER_"
ENV_DELIMITER = "__"

R = TypeVar("R", bound="Root")


class Root(BaseSettings):
    """Base of a process's settings tree. Sections that another process reads are left alone with `extra="ignore"`."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags before environment before file; no dotenv file and no folder of secrets is read."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load(root: type[R], file: Path | None = None, flags: Mapping[str, Any] | None = None) -> R:
    """The settings of one process.

    Args:
        root: the tree to fill.
        file: the TOML file; None reads `stoker.toml` if there is one, else defaults hold.
        flags: nested values from the command line, above everything else.

    Raises:
        BrokenConfiguration: the file is missing or no TOML, a key is unknown, or a value is not allowed.
    """
    if file is not None and not file.exists():
        raise BrokenConfiguration(f"{file}: no such file; write one (docs/configuration.md) or leave --config out")
    toml = file if file is not None else DEFAULT_FILE

    reading = type(
        root.__name__, (root,), {"model_config": SettingsConfigDict(toml_file=toml), "__doc__": root.__doc__}
    )
    try:
        loaded: R = reading(**dict(flags or {}))
    except ValidationError as error:
        raise BrokenConfiguration("\n".join(_sentences(root, error, toml))) from None
    except tomllib.TOMLDecodeError as error:
        raise BrokenConfiguration(f"{toml}: not valid TOML: {error}") from None
    _refuse_unknown_sections(root)
    return loaded


def keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Every key of a tree in dotted form, sections included, for documentation and for the nearest known key."""
    found = []
    for name, field in model.model_fields.items():
        found.append(prefix + name)
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found += keys(inner, f"{prefix}{name}.")
    return found


def _sentences(root: type[BaseModel], error: ValidationError, toml: Path) -> Iterable[str]:
    for problem in error.errors(include_input=False, include_url=False):
        place = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            yield f"{place}: unknown key{_nearest(place, keys(root))}"
        else:
            yield f"{place or toml}: {problem['msg']}; see docs/configuration.md"


def _nearest(place: str, known: list[str]) -> str:
    close = difflib.get_close_matches(place, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else "; see docs/configuration.md for the known ones"


def _refuse_unknown_sections(root: type[BaseModel]) -> None:
    """pydantic ignores a variable of a section that it does not know: STOKER_KAFAK__BOOTSTRAP would do nothing."""
    if root.model_config.get("extra") != "forbid":
        return
    for variable in os.environ:
        section, delimiter, _ = variable.removeprefix(ENV_PREFIX).lower().partition(ENV_DELIMITER)
        if variable.startswith(ENV_PREFIX) and delimiter and section not in root.model_fields:
            nearest = _nearest(section, list(root.model_fields))
            raise BrokenConfiguration(f"environment variable {variable}: unknown section {section}{nearest}")
