"""Reading `stoker.toml`: file, environment (`STOKER_SECTION__KEY`) and flags, in rising order, into one typed tree.

A process declares the sections that it reads as fields of a pydantic model; one with `extra="ignore"` leaves the
sections of other processes alone. What is wrong is told once, all of it, with the place, the allowed values and the
nearest known key; a value is never repeated, since it may be a misplaced secret.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from schemas.errors import BrokenConfiguration

DEFAULT_FILE = Path("stoker.toml")
ENV_PREFIX = "STOKER_"
ENV_DELIMITER = "__"

T = TypeVar("T", bound=BaseModel)


class _Sources(BaseSettings):
    """Where values come from; mixed into the tree that is read."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter=ENV_DELIMITER, frozen=True, hide_input_in_errors=True
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


def load(tree: type[T], file: Path | None = None, flags: Mapping[str, Any] | None = None) -> T:
    """The settings of one process.

    Args:
        tree: the model to fill; its fields are the sections.
        file: the TOML file; None reads `stoker.toml` if there is one, else defaults hold.
        flags: nested values from the command line, above everything else.

    Raises:
        BrokenConfiguration: the file is missing or no TOML, a key is unknown, or a value is not allowed.
    """
    if file is not None and not file.is_file():
        raise BrokenConfiguration(f"{file}: no such file; write one (docs/configuration.md) or leave --config out")
    toml = file if file is not None else DEFAULT_FILE
    sources = type(
        tree.__name__,
        (_Sources, tree),
        {"model_config": SettingsConfigDict(toml_file=toml, extra=tree.model_config.get("extra", "forbid"))},
    )
    _refuse_unknown_sections(tree)
    try:
        return tree.model_validate(sources(**dict(flags or {})).model_dump(exclude_unset=True))
    except ValidationError as error:
        raise BrokenConfiguration("\n".join(_sentences(tree, error, toml))) from None
    except tomllib.TOMLDecodeError as error:
        raise BrokenConfiguration(f"{toml}: not valid TOML: {error}") from None


def keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Every key of a tree in dotted form, sections included, for documentation and for the nearest known key."""
    found = []
    for name, field in model.model_fields.items():
        found.append(prefix + name)
        # A section, or a list of sections of one kind.
        for inner in (field.annotation, *get_args(field.annotation)[:1]):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                found += keys(inner, f"{prefix}{name}.")
    return found


def _sentences(tree: type[BaseModel], error: ValidationError, toml: Path) -> Iterable[str]:
    for problem in error.errors(include_input=False, include_url=False):
        place = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            unnumbered = ".".join(part for part in problem["loc"] if isinstance(part, str))
            yield f"{place}: unknown key{_nearest(unnumbered, keys(tree))}"
        else:
            yield f"{place or toml}: {problem['msg']}; see docs/configuration.md"


def _nearest(place: str, known: list[str]) -> str:
    close = difflib.get_close_matches(place, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else "; see docs/configuration.md for the known ones"


def _refuse_unknown_sections(tree: type[BaseModel]) -> None:
    """pydantic ignores a variable of a section that it does not know: STOKER_KAFAK__BOOTSTRAP would do nothing."""
    if tree.model_config.get("extra") != "forbid":
        return
    for variable in os.environ:
        section, delimiter, _ = variable.removeprefix(ENV_PREFIX).lower().partition(ENV_DELIMITER)
        if variable.startswith(ENV_PREFIX) and delimiter and section not in tree.model_fields:
            nearest = _nearest(section, list(tree.model_fields))
            raise BrokenConfiguration(f"environment variable {variable}: unknown section {section}{nearest}")
