"""Several trained models as one: the mean of their log-probabilities at every step."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from nmt_cli.models.base import Decoded, Seq2Seq, Tree, full_precision


class Ensemble(Seq2Seq):
    """A Seq2Seq whose memory and state are the tuples of its members'.

    The hidden states of all members stand side by side. Target vocabularies must be equal.
    """

    def __init__(self, members: list[Seq2Seq]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.widths = [_hidden_width(member) for member in members]
        limits = [member.max_positions for member in members if member.max_positions]
        self.max_positions = min(limits, default=None)

    def models(self) -> list[Seq2Seq]:
        """List the members."""
        return [cast(Seq2Seq, member) for member in self.members]

    def encode(self, src: Tensor, src_mask: Tensor) -> Tree:
        """Give the tuple of the members' memories."""
        return tuple(member.encode(src, src_mask) for member in self.models())

    def start(self, memory: Tree, max_length: int | None = None) -> Tree:
        """Give the tuple of the members' first states."""
        pairs = zip(self.models(), cast(tuple[Tree, ...], memory), strict=True)
        return tuple(member.start(part, max_length) for member, part in pairs)

    def decode(
        self, tokens: Tensor, memory: Tree, state: Tree, *, attention: bool = False
    ) -> Decoded:
        """Let every member read the tokens; attention lists the layers of all members."""
        parts = zip(
            self.models(),
            cast(tuple[Tree, ...], memory),
            cast(tuple[Tree, ...], state),
            strict=True,
        )
        results = [model.decode(tokens, m, s, attention=attention) for model, m, s in parts]
        hidden = torch.cat([result.hidden for result in results], dim=-1)
        layers = tuple(weights for result in results for weights in result.attention)
        return Decoded(hidden, tuple(result.state for result in results), layers)

    def project(self, hidden: Tensor) -> Tensor:
        """Average the members' log-probabilities: (..., V)."""
        parts = zip(self.models(), hidden.split(self.widths, dim=-1), strict=True)
        logits = [full_precision(member.project(part)) for member, part in parts]
        return torch.stack(logits).log_softmax(-1).mean(0)


@torch.inference_mode()
def _hidden_width(model: Seq2Seq) -> int:
    """Read one token to see how wide the hidden states are."""
    token = torch.zeros((1, 1), dtype=torch.int64, device=next(model.parameters()).device)
    memory = model.encode(token, torch.ones_like(token, dtype=torch.bool))
    return model.decode(token, memory, model.start(memory)).hidden.shape[-1]
