"""Transactional-outbox projector: PostgreSQL rows become Elasticsearch documents."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outbox.library import Outbox

__version__ = "0.1.0"
__all__ = ["Outbox", "__version__"]


def __getattr__(name: str) -> object:
    """`Outbox` is imported when someone asks for it: every room imports this module, few need the driver."""
    if name == "Outbox":
        from outbox.library import Outbox  # noqa: PLC0415

        return Outbox
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
