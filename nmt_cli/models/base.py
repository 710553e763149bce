"""The interface that every back end stands behind, and the registry that lists them.

Shapes, here and in every model file: B batch, S source length, T target length, D width,
H heads, V vocabulary, K beam. Tensors are batch first; a mask is bool with True = keep.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nmt_cli.errors import NmtError, did_you_mean
from nmt_cli.models.options import parse

Tree: TypeAlias = Tensor | tuple["Tree", ...]
"""A plain nest of tuples of tensors, each with the batch on axis 0."""


class Decoded(NamedTuple):
    """What one call of ``Seq2Seq.decode`` gives."""

    hidden: Tensor
    """(B, T, D), before the output projection."""
    state: Tree
    """The decoder state after the last token."""
    attention: tuple[Tensor, ...]
    """One (B, H, T, S) per attending layer when asked for, else empty."""


class Seq2Seq(nn.Module, ABC):
    """An encoder-decoder in four steps: encode, start, decode, project.

    ``decode`` serves teacher forcing (T = the whole target) and stepping (T = 1) alike. State
    is a value: passed in, returned, never stored on the module. In beam search ``tokens`` and
    ``state`` have B*K rows over B rows of memory, row b*K+k belonging to sentence b.
    """

    max_positions: int | None = None
    """Tokens, ends included, that a sentence may have on either side; None: any number."""

    @abstractmethod
    def encode(self, src: Tensor, src_mask: Tensor) -> Tree:
        """Read the source: ``src`` (B, S) int64, ``src_mask`` (B, S) bool, True = a real token."""

    @abstractmethod
    def start(self, memory: Tree, max_length: int | None = None) -> Tree:
        """Give the decoder state before the first token.

        With ``max_length`` a model may preallocate, and ``decode`` may then consume the state
        that it was given.
        """

    @abstractmethod
    def decode(
        self, tokens: Tensor, memory: Tree, state: Tree, *, attention: bool = False
    ) -> Decoded:
        """Read ``tokens`` (B, T), any T >= 1, from ``state`` on."""

    @abstractmethod
    def project(self, hidden: Tensor) -> Tensor:
        """Map hidden (..., D) to logits (..., V)."""


def select(tree: Tree, rows: Tensor) -> Tree:
    """Take the given batch rows (int64) of every tensor in the tree."""
    if isinstance(tree, tuple):
        return tuple(select(branch, rows) for branch in tree)
    return tree.index_select(0, rows)


def close_ranks(tree: Tree, moves: Tensor, count: int) -> Tree:
    """Keep so many batch rows, the first, once rows from behind took the places of those that left.

    Where few rows leave, few are copied: ``select`` would copy all. The tensors are changed, so
    whoever calls this must own them.

    Args:
        tree: a memory or a state.
        moves: (2, M) int64, places below ``count``, and the places from there on of the rows that
            take them.
        count: of the rows that stay.
    """
    if isinstance(tree, tuple):
        return tuple(close_ranks(branch, moves, count) for branch in tree)
    gaps, fillers = moves
    if tree.stride(0) > 0:  # else all rows are one
        tree.index_copy_(0, gaps, tree.index_select(0, fillers))
    return tree[:count]


def join(first: Tree, second: Tree) -> Tree:
    """Put the batch rows of a second tree behind those of a first.

    Where sides are not as long, as those of sources, the shorter ones are filled with zeros.
    """
    if isinstance(first, tuple):
        return tuple(map(join, first, cast("tuple[Tree, ...]", second)))
    parts = (first, cast(Tensor, second))
    sizes = [max(sides) for sides in zip(*(part.shape[1:] for part in parts), strict=True)]
    joined = first.new_zeros(sum(len(part) for part in parts), *sizes)
    for part, rows in zip(parts, joined.split([len(part) for part in parts]), strict=True):
        sides = tuple(slice(size) for size in part.shape)
        rows[sides] = part
    return joined


def parameter_count(model: nn.Module) -> int:
    """Count the parameters, a shared one once."""
    return sum(p.numel() for p in model.parameters())


class Uninitialised(TorchFunctionMode):
    """Within it ``nn.init`` does nothing: for a model whose weights are about to be loaded.

    On the meta device the initialisations would also load torch's compiler, for a second.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Give back the tensor that was to be filled."""
        given = dict(kwargs or {})
        if getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


class Vocabulary(NamedTuple):
    """Sizes of the two vocabularies, and whether they are one."""

    src: int
    tgt: int
    shared: bool


@dataclass(frozen=True)
class Recipe:
    """How an architecture is trained when the user sets nothing: right for small corpora."""

    lr: float
    """Peak learning rate of AdamW."""
    warmup: int
    """Steps of linear warm-up."""
    schedule: Literal["inverse-sqrt", "cosine", "constant"] = "inverse-sqrt"
    batch_tokens: int = 4096
    """Tokens of the longer side of a batch, padding included."""
    epochs: float = 30
    generated_epochs: float = 10
    """Epochs on a corpus that is made, such as toy: free of noise, and learnt sooner."""
    label_smoothing: float = 0.1
    clip_norm: float = 1.0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.98)


class Traits(NamedTuple):
    """What the story is about: what an architecture costs in time, distance and memory."""

    year: int
    parallel: bool
    """Whether a sentence is trained on at all its positions at once."""
    path: str
    """Steps between two words that are n apart in the target."""
    keeps: str
    """What decoding keeps from one word to the next, beside what it reads the source from."""
    reads: Literal["every word", "one vector"] = "every word"
    """What it reads the source from."""


ONE_STATE = "one state a layer"
"""What decoding with a recurrence keeps."""


@dataclass(frozen=True)
class Architecture:
    """One entry of the registry."""

    name: str
    summary: str
    paper: str
    traits: Traits
    options: type
    build: Callable[[Any, Vocabulary], Seq2Seq]
    recipe: Recipe
    sizes: Mapping[str, Mapping[str, Any]]
    """Option values of ``--size tiny|small|base``."""
    size_training: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Where a size is trained otherwise than the recipe says, such as a wide model's rate."""
    bf16_on_cpu: bool = False
    """Whether bf16 was measured to pay on a CPU with native bf16 instructions."""
    variants: tuple[Mapping[str, Any], ...] = field(default=({},))
    """Option settings at which the laws of every back end are tested."""


_REGISTRY: dict[str, Architecture] = {}


def register(architecture: Architecture) -> None:
    """Add an architecture; a model file calls this once per name."""
    _REGISTRY[architecture.name] = architecture


def architectures() -> list[Architecture]:
    """List what is registered, by name."""
    return [_REGISTRY[name] for name in sorted(_REGISTRY)]


def architecture(name: str) -> Architecture:
    """Look an architecture up.

    Raises:
        NmtError: for an unknown name; it lists the known ones.
    """
    if name not in _REGISTRY:
        there = ", ".join(sorted(_REGISTRY)) + did_you_mean(name, _REGISTRY)
        raise NmtError(f"no architecture {name!r}; there are: {there}")
    return _REGISTRY[name]


def resolve_options(name: str, size: str, given: Mapping[str, Any]) -> Any:
    """Merge the values of a size with the user's own, which win, into the options dataclass."""
    arch = architecture(name)
    if size not in arch.sizes:
        raise NmtError(f"no size {size!r}; {name} has: {', '.join(arch.sizes)}")
    own = {key.replace("-", "_"): value for key, value in given.items()}
    return parse(arch.options, {**arch.sizes[size], **own}, name)


def lengths_of(mask: Tensor) -> Tensor:
    """Count the real tokens of each row of a (B, S) mask: (B,) int64."""
    return mask.sum(dim=1, dtype=torch.int64)


def flip_index(mask: Tensor) -> Tensor:
    """Positions (B, S) that turn each row round within its length and leave padding in place."""
    positions = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    return torch.where(mask, lengths_of(mask)[:, None] - 1 - positions, positions)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Pick positions (B, N) of x (B, S, D): (B, N, D)."""
    return x.gather(1, index.unsqueeze(-1).expand(-1, -1, x.shape[2]))


def full_precision(x: Tensor) -> Tensor:
    """Widen half precision to fp32: recurrent state is handed on in at least that."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def working_precision(x: Tensor) -> Tensor:
    """Give x in the number format of products here: half precision within autocast."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x
