"""Transactional-outbox projector: PostgreSQL rows become Elasticsearch documents."""

import os
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outbox.library import AsyncOutbox, Outbox

__version__ = "0.2.0"
__all__ = ["AsyncOutbox", "Outbox", "__version__"]

if os.path.exists(f"{__path__[0]}.py"):  # noqa: PTH110  (one call, at each import of everything)
    warnings.warn(
        "The package `outbox` is installed beside `outbox-projector`, and `import outbox` finds the latter."
        " Use an environment for each.",
        stacklevel=2,
    )


def __getattr__(name: str) -> object:
    """The library is imported when someone asks for it: every room imports this module, few need the driver."""
    if name in ("AsyncOutbox", "Outbox"):
        from outbox import library  # noqa: PLC0415

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
