"""Train, run and measure small neural translation models on one's own machine.

From Python: ``load``, ``train`` and ``evaluate``, of ``nmt_cli.api``, which is imported when one of
them is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt_cli.api import Evaluation, Model, Translated, evaluate, load, train
    from nmt_cli.errors import NmtError

__version__ = "0.1.0"
__all__ = ["Evaluation", "Model", "NmtError", "Translated", "evaluate", "load", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "NmtError":
        from nmt_cli.errors import NmtError

        return NmtError
    from nmt_cli import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
