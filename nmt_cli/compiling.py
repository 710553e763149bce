"""``--compile``: the forward pass as one fused program, by torch.compile."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import torch

from nmt_cli.errors import WorkFailed
from nmt_cli.models.base import Seq2Seq

Forward = TypeVar("Forward", bound=Callable[..., torch.Tensor])


def compiled(forward: Forward) -> Forward:
    """Compile a function of a model and a batch, for batches of any shape.

    What cannot be compiled, such as a loop over the words of a sentence, runs as it did before.

    Raises:
        WorkFailed: at the first call, if there is nothing to compile with.
    """
    from torch._dynamo.exc import TorchDynamoException

    torch._logging.set_logs(  # type: ignore[attr-defined]
        dynamo=logging.ERROR, inductor=logging.ERROR
    )
    program = torch.compile(forward, dynamic=True)

    def run(model: Seq2Seq, *batch: torch.Tensor) -> torch.Tensor:
        try:
            return program(model, *batch)
        except TorchDynamoException as error:
            reason = " ".join(str(error).partition("Set TORCHDYNAMO")[0].split())[:200]
            raise WorkFailed(
                f"--compile: torch.compile failed: {reason}; on a CPU it needs a C++ compiler "
                "(g++), on CUDA a triton that fits torch; or leave --compile out"
            ) from error

    return run  # type: ignore[return-value]
