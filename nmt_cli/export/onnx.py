"""Any architecture as two ONNX graphs: the encoder, and one step of the decoder.

``encoder.onnx`` maps ``src`` (B, S) int64 and ``src_mask`` (B, S) bool to ``memory_0``, ... and
``state_0``, ...; ``decoder.onnx`` maps ``token`` (B,) int64, the memory and the state to
``log_probs`` (B, V) and the state after the token, ``next_0``, ... A search is a loop around the
second one, and needs to know nothing of the architecture.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.errors import NmtError
from nmt_cli.models import Seq2Seq, Tree
from nmt_cli.runs import RunFolder
from nmt_cli.tokenizer import BOS, EOS
from nmt_cli.translation import load_model

OPSET = 18
_PROBES = ((2, 4, 2), (3, 6, 3), (3, 6, 0))
"""Rows, source length and steps: what differs between them is an axis of any size."""


def write_onnx(run: RunFolder, folder: Path) -> None:
    """Write a run's model as two graphs, and its tokenizers, into a folder that is there.

    Raises:
        NmtError: if the package is not installed, or tracing cannot follow the model.
    """
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise NmtError("--to onnx: needs its package: pip install onnx") from None
    if run.config()["options"].get("positions") == "relative":
        raise NmtError(
            "--to onnx: not with positions=relative, whose table of distances tracing cannot follow"
        )
    model = load_model(run, torch.device("cpu"))
    src, tgt = run.tokenizers()
    export(model, folder)
    for name, tokenizer in (("source.spm", src), ("target.spm", tgt)):
        (folder / name).write_bytes(tokenizer.model)


class _Encoder(nn.Module):
    """Source to memory and first state, as a flat tuple."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, src: Tensor, src_mask: Tensor) -> tuple[Tensor, ...]:
        memory = self.model.encode(src, src_mask)
        state = self.model.start(memory)
        return tuple(leaf.clone() for leaf in (*leaves(memory), *leaves(state)))


class _Step(nn.Module):
    """One token to log-probabilities and next state; trees come in as flat tuples."""

    def __init__(self, model: Seq2Seq, memory: Tree, state: Tree) -> None:
        super().__init__()
        self.model = model
        self.memory, self.state = memory, state

    def forward(self, token: Tensor, *flat: Tensor) -> tuple[Tensor, ...]:
        rest = iter(flat)
        memory, state = like(self.memory, rest), like(self.state, rest)
        decoded = self.model.decode(token.unsqueeze(1), memory, state)
        log_probs = torch.log_softmax(self.model.project(decoded.hidden[:, -1]), dim=-1)
        return log_probs, *(leaf.clone() for leaf in leaves(decoded.state))


def export(model: Seq2Seq, folder: Path) -> None:
    """Write ``encoder.onnx`` and ``decoder.onnx`` of a model in eval mode."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer, about shapes; the tests hold for any
        small, *others = (_probe(model, *probe) for probe in _PROBES)
        memory_names = [f"memory_{n}" for n in range(len(leaves(small.memory)))]
        state_names = [f"state_{n}" for n in range(len(leaves(small.state)))]
        next_names = [f"next_{n}" for n in range(len(state_names))]
        tensors = small.tensors()
        names = [*memory_names, *state_names]
        axes = {
            name: _free_axes(name, alike)
            for name, *alike in zip(names, tensors, *(o.tensors() for o in others), strict=True)
        }
        axes |= {
            after: {axis: f"{name}_after" if axis else name for axis, name in axes[before].items()}
            for before, after in zip(state_names, next_names, strict=True)
        }
        source = {0: "batch", 1: "src_length"}
        _write(
            _Encoder(model),
            (small.src, small.mask),
            folder / "encoder.onnx",
            ["src", "src_mask"],
            names,
            {"src": source, "src_mask": source, **axes},
        )
        _write(
            _Step(model, small.memory, small.state),
            (small.token, *tensors),
            folder / "decoder.onnx",
            ["token", *names],
            ["log_probs", *next_names],
            {"token": {0: "batch"}, "log_probs": {0: "batch"}, **axes},
        )


class _Probe:
    """A model's tensors for one batch after some steps."""

    def __init__(self, src: Tensor, mask: Tensor, token: Tensor, memory: Tree, state: Tree) -> None:
        self.src, self.mask, self.token = src, mask, token
        self.memory, self.state = memory, state

    def tensors(self) -> list[Tensor]:
        return [*leaves(self.memory), *leaves(self.state)]


def _probe(model: Seq2Seq, rows: int, length: int, steps: int) -> _Probe:
    src = torch.full((rows, length), EOS)
    mask = torch.ones(rows, length, dtype=torch.bool)
    mask[0, -1] = False
    memory = model.encode(src, mask)
    state = model.start(memory)
    token = torch.full((rows,), BOS)
    for _ in range(steps):
        state = model.decode(token.unsqueeze(1), memory, state).state
    return _Probe(src, mask, token, memory, state)


def _free_axes(name: str, tensors: Sequence[Tensor]) -> dict[int, str]:
    """Name the axes in which tensors of one name differ."""
    sizes = zip(*(tensor.shape for tensor in tensors), strict=True)
    return {
        axis: "batch" if axis == 0 else f"{name}_{axis}"
        for axis, found in enumerate(sizes)
        if len(set(found)) > 1
    }


def _write(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    path: Path,
    input_names: Sequence[str],
    output_names: Sequence[str],
    axes: dict[str, dict[int, str]],
) -> None:
    named = {*input_names, *output_names}
    torch.onnx.export(
        module.eval(),
        inputs,
        str(path),
        input_names=list(input_names),
        output_names=list(output_names),
        dynamic_axes={name: free for name, free in axes.items() if name in named},
        opset_version=OPSET,
        dynamo=False,
    )


def leaves(tree: Tree) -> list[Tensor]:
    """List the tensors of a tree, from left to right."""
    if isinstance(tree, tuple):
        return [leaf for branch in tree for leaf in leaves(branch)]
    return [tree]


def like(tree: Tree, flat: Iterator[Any]) -> Tree:
    """Build a tree of the same form from a list of tensors."""
    if isinstance(tree, tuple):
        return tuple(like(branch, flat) for branch in tree)
    leaf: Tensor = next(flat)
    return leaf
