"""Owns how one setting is declared and described; it does not read or check any value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

# A year and a century: these fit PostgreSQL's timestamps, timedelta and a thread's wait.
_LONGEST = {"SECONDS": 31_536_000, "DAYS": 36_500}
_BOUNDS = (("ge", "from"), ("gt", "above"), ("le", "to"), ("lt", "below"))


class Section(BaseModel):
    """A frozen group of settings. Its validation errors never show the given value."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


@dataclass(frozen=True)
class Variable:
    """One environment variable, as the docs, `config print` and error messages describe it."""

    name: str
    section: str
    field: str
    meaning: str
    tradeoff: str
    default: str
    accepts: str
    secret: bool
    aliases: tuple[str, ...]
    show: Callable[[str], str] | None

    @property
    def path(self) -> str:
        """Where the value stands in the settings tree."""
        return f"{self.section}.{self.field}" if self.section else self.field


def setting(
    variable: str,
    default: Any = None,
    *,
    meaning: str,
    tradeoff: str = "",
    default_factory: Callable[..., Any] | None = None,
    default_text: str | None = None,
    accepts: str = "",
    secret: bool = False,
    aliases: tuple[str, ...] = (),
    show: Callable[[str], str] | None = None,
    **constraints: Any,
) -> Any:
    """A field with its variable. Returns Any, as pydantic's Field does, to fit any declared type."""
    about: dict[str, Any] = {
        "variable": variable,
        "tradeoff": tradeoff,
        "default": default_text if default_text is not None else _as_text(default),
        "accepts": accepts,
        "secret": secret,
        "aliases": aliases,
        "show": show,
    }
    if longest := _LONGEST.get(variable.rpartition("_")[2]):
        constraints = {"le": longest, "allow_inf_nan": False} | constraints
    origin = {"default_factory": default_factory} if default_factory else {"default": default}
    hidden = secret or show is not None
    return Field(**origin, description=meaning, json_schema_extra=about, repr=not hidden, **constraints)


def variables_of(model: type[BaseModel], section: str = "") -> Iterator[Variable]:
    """Every variable of a settings tree, in the order of its declaration."""
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            yield from variables_of(info.annotation, name)
        elif isinstance(info.json_schema_extra, dict):
            yield _described(section, name, info, dict(info.json_schema_extra))


def _described(section: str, field: str, info: FieldInfo, about: dict[str, Any]) -> Variable:
    return Variable(
        name=about["variable"],
        section=section,
        field=field,
        meaning=info.description or "",
        tradeoff=about["tradeoff"],
        default=about["default"],
        accepts=about["accepts"] or _accepted(info),
        secret=about["secret"],
        aliases=about["aliases"],
        show=about["show"],
    )


def _accepted(info: FieldInfo) -> str:
    kinds = [kind for kind in (get_args(info.annotation) or (info.annotation,)) if kind is not type(None)]
    if get_origin(info.annotation) is Literal:
        return ", ".join(f"`{kind}`" for kind in kinds[:-1]) + f" or `{kinds[-1]}`"
    if kinds[0] is bool:
        return "`true` or `false`"
    if kinds[0] in (int, float):
        noun = "a whole number" if kinds[0] is int else "a number"
        return " ".join([noun, *_bounds(info)])
    return "text"


def _bounds(info: FieldInfo) -> Iterator[str]:
    for attribute, preposition in _BOUNDS:
        for rule in info.metadata:
            bound = getattr(rule, attribute, None)
            if bound is not None:
                yield f"{preposition} {bound:g}" if isinstance(bound, float) else f"{preposition} {bound}"


def _as_text(default: Any) -> str:
    if default is None or default == ():
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)
