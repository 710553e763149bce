"""An LSTM over all steps of a batch, with its way back written out.

Layers that read the same number of steps, such as the two directions of an encoder, run side by
side: each has products of its own, and what is done to single numbers is done for all at once.
The decoder loops that are fed something at each step share the tape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

tanh_backward = torch.ops.aten.tanh_backward
sigmoid_backward = torch.ops.aten.sigmoid_backward
softmax_backward = torch.ops.aten._softmax_backward_data


def dot_each(x: Tensor, y: Tensor) -> Tensor:
    """Multiply y (B, D) with each of x (B, S, D): (B, S).

    y stands as a row: as a column it takes a CPU up to twice as long.
    """
    return torch.bmm(y.unsqueeze(1), x.transpose(1, 2)).squeeze(1)


class LstmTape(NamedTuple):
    """What T steps of an LSTM leave for their way back: time first, then any axes of rows."""

    activations: Tensor
    """The gates i, f, g, o after their sigmoid or tanh, (T, ..., 4 D)."""
    cells: Tensor
    """(T + 1, ..., D), the first one from before the first step, in at least fp32."""
    cells_tanh: Tensor
    """(T, ..., D), of the cells after each step."""

    @classmethod
    def blank(cls, steps: int, cell: Tensor, dtype: torch.dtype) -> LstmTape:
        """Make room for steps from a cell (..., D), with gates of a number format."""
        rows, D = cell.shape[:-1], cell.shape[-1]
        cells = cell.new_empty(steps + 1, *rows, D)
        cells[0] = cell
        activations = cell.new_empty(steps, *rows, 4 * D, dtype=dtype)
        return cls(activations, cells, torch.empty_like(cells[1:]))

    def step(self, t: int, summed: Tensor) -> Tensor:
        """Take step t from the sums (..., 4 D) before the gates: the hidden state (..., D)."""
        gates, D = self.activations[t], self.cells.shape[-1]
        torch.sigmoid(summed, out=gates)
        i, f, g, o = gates.split(D, dim=-1)
        torch.tanh(summed[..., 2 * D : 3 * D], out=g)
        torch.mul(f, self.cells[t], out=self.cells[t + 1]).add_(i * g)
        torch.tanh(self.cells[t + 1], out=self.cells_tanh[t])
        return o * self.cells_tanh[t]

    def back(self, t: int, d_hidden: Tensor, d_cell: Tensor, d_summed: Tensor) -> Tensor:
        """Go back through step t.

        Args:
            t: the step.
            d_hidden: gradient of the hidden state after it (..., D).
            d_cell: gradient of the cell after it, by way of later steps alone (..., D).
            d_summed: where the gradient of the sums goes, (..., 4 D).

        Returns:
            the gradient of the cell before the step (..., D).
        """
        D = d_hidden.shape[-1]
        i, f, g, o = self.activations[t].to(d_hidden.dtype).split(D, dim=-1)
        d_cell = d_cell + tanh_backward(d_hidden * o, self.cells_tanh[t])
        d_i, d_f, d_g, d_o = d_summed.split(D, dim=-1)
        d_i.copy_(sigmoid_backward(d_cell * g, i))
        d_f.copy_(sigmoid_backward(d_cell * self.cells[t], f))
        d_g.copy_(tanh_backward(d_cell * i, g))
        d_o.copy_(sigmoid_backward(d_hidden * self.cells_tanh[t], o))
        return d_cell * f


def recur(
    gates: Sequence[Tensor], hidden: Tensor, cell: Tensor, recurrent: Sequence[Tensor]
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Run N LSTM layers side by side: hidden, cell = lstm_step(gates, U hidden, cell).

    Args:
        gates: N of (T, B, 4 D), what the inputs contribute to the gates i, f, g, o.
        hidden: the first hidden states (N, B, D), in at least fp32.
        cell: the first cells (N, B, D), in at least fp32.
        recurrent: N of U (4 D, D).

    Returns:
        N outputs (T, B, D), the last hidden states and the last cells (N, B, D). They can be
        differentiated once.
    """
    *outputs, last_hidden, last_cell = _Recur.apply(hidden, cell, *gates, *recurrent)  # type: ignore[no-untyped-call]
    return outputs, last_hidden, last_cell


class _Recur(torch.autograd.Function):
    """Time comes first in all that is kept, then the layer."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, cell: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        N, B, D = hidden.shape
        gates, recurrent = given[:N], given[N:]
        T, dtype = len(gates[0]), gates[0].dtype
        weights = [weight.to(dtype) for weight in recurrent]
        weights_t = [weight.t().contiguous() for weight in weights]
        tape = LstmTape.blank(T, cell, dtype)
        hiddens = gates[0].new_empty(T + 1, N, B, D)
        hiddens[0] = hidden
        summed = gates[0].new_empty(N, B, 4 * D)
        for t in range(T):
            for n in range(N):
                torch.addmm(gates[n][t], hiddens[t, n], weights_t[n], out=summed[n])
            hidden = tape.step(t, summed)
            hiddens[t + 1] = hidden
        ctx.save_for_backward(*tape, hiddens, *weights)
        return *hiddens[1:].unbind(1), hidden.clone(), tape.cells[-1].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        *taped, hiddens = ctx.saved_tensors[:4]
        tape, weights = LstmTape(*taped), ctx.saved_tensors[4:]
        N, (T, B, D) = len(weights), grads[0].shape
        *d_outputs, d_hidden, d_cell = grads
        d_gates = tape.activations.new_empty(N, T, B, 4 * D)
        for t in reversed(range(T)):
            d_hidden = d_hidden + torch.stack([d_output[t] for d_output in d_outputs])
            d_cell = tape.back(t, d_hidden, d_cell, d_gates[:, t])
            back = [d_gates[n, t] @ weights[n] for n in range(N)]
            d_hidden = torch.stack(back).to(d_cell.dtype)
        d_weights = [d_gates[n].flatten(0, 1).t() @ hiddens[:-1, n].flatten(0, 1) for n in range(N)]
        return d_hidden, d_cell, *d_gates.unbind(0), *d_weights
