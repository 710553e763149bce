"""Every back end: one file each, registered by being here."""

import importlib
import pkgutil

from nmt_cli.models.base import (
    Architecture,
    Decoded,
    Recipe,
    Seq2Seq,
    Tree,
    Vocabulary,
    architecture,
    architectures,
    parameter_count,
    resolve_options,
    select,
)

for _module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
    importlib.import_module(_module.name)

__all__ = [
    "Architecture",
    "Decoded",
    "Recipe",
    "Seq2Seq",
    "Tree",
    "Vocabulary",
    "architecture",
    "architectures",
    "parameter_count",
    "resolve_options",
    "select",
]
