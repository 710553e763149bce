"""COMET (Rei et al. 2020), by the package ``unbabel-comet`` where that is installed."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nmt_cli.errors import NmtError
from nmt_cli.metrics import Floats

COMET = "comet"
DEFAULT_MODEL = "Unbabel/wmt22-comet-da"
_BATCH = 16
_LONGEST_REASON = 200


def is_comet(metric: str) -> bool:
    """Tell whether a name is ``comet`` or ``comet=MODEL``."""
    return metric.partition("=")[0] == COMET


def require_comet(metric: str) -> None:
    """Load a model of COMET, before the work that it is to judge.

    Raises:
        NmtError: if its package is not installed, or the model cannot be had.
    """
    _, equals, model = metric.partition("=")
    if equals and not model:
        raise NmtError(f"--metrics {metric}: name a model of the hub, or a checkpoint file")
    if importlib.util.find_spec("comet") is None:
        raise NmtError(
            f"--metrics {metric}: needs the package COMET: pip install unbabel-comet (in an "
            "environment of its own, with nmt, if it asks for another torch)"
        )
    with _in_silence():
        _scorer(metric)


def comet_scores(
    metric: str, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> Floats:
    """Score every sentence.

    Args:
        metric: ``comet``, or ``comet=MODEL`` with the name of a model on the hub, which is
            downloaded unless it is there, or the path of a checkpoint.
        sources: what was translated.
        hypotheses: the translations.
        references: what they are compared with.

    Returns:
        (N,) 100 times COMET's scores, most of them between 0 and 100.

    Raises:
        NmtError: if the model cannot be had.
    """
    if not sources:
        return np.empty(0)
    rows = [
        {"src": src, "mt": hypothesis, "ref": reference}
        for src, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
    ]
    with _in_silence():
        import torch

        scorer = _scorer(metric)
        gpus = int(torch.cuda.is_available())
        found = scorer.predict(rows, batch_size=_BATCH, gpus=gpus, progress_bar=False)
    return 100 * np.asarray(found["scores"], dtype=np.float64)


@lru_cache(maxsize=1)
def _scorer(metric: str) -> Any:
    from comet import download_model, load_from_checkpoint

    model = metric.partition("=")[2] or DEFAULT_MODEL
    local = Path(model).is_file()
    try:
        return load_from_checkpoint(model if local else download_model(model))
    except Exception as error:  # whatever the package and the hub raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_REASON]
        what = "is it a checkpoint of COMET, with its hparams.yaml in the folder above?"
        what = what if local else "is the name right, and the hub in reach?"
        raise NmtError(
            f"--metrics {metric}: the model cannot be loaded; {what} ({reason})"
        ) from None


@contextmanager
def _in_silence() -> Iterator[None]:
    """Keep the package, and those it builds on, from talking about themselves."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
