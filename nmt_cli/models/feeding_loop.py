"""Luong's decoder with input feeding over all steps of a batch, with its way back written out.

Each step is fed the attentional vector of the step before, so no step can be taken early. As in
``additive_loop``, the way back collects what each step contributes and forms the gradient of each
weight once. ``InputFeeding.step_by_step`` says the same in plain words, and the tests hold the two
together.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nmt_cli.models.lstm_loop import LstmTape, dot_each, softmax_backward, tanh_backward


def recur_and_attend(
    gates: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    state: tuple[Tensor, Tensor, Tensor],
    weights: tuple[Tensor, Tensor, Tensor, Tensor],
    kept: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Take all steps of a decoder of one LSTM layer that is fed its attentional vector.

    With s the hidden state, a the attentional vector and F, U, W, b the weights, a step is (Luong
    et al. 2015, equations 5 and 7 and section 3.3)

        s, cell = lstm_step(gates + F a, U s, cell),
        c = sum_j softmax(keys . s)_j values_j,  a = tanh(W [c; s] + b).

    Args:
        gates: (B, T, 4 D), what the target embeddings contribute to the gates i, f, g, o.
        keys: (B, S, D), scaled or mapped so that their products with s are the scores.
        values: (B, S, D_v).
        mask: (B, S) bool, True = a real token.
        state: hidden state and cell (B, D) and attentional vector (B, E) before the first step,
            each in at least fp32.
        weights: F (4 D, E), U (4 D, D), W (E, D_v + D) and b (E,).
        kept: dropout as factors of s, where it attends (T, B, D), and of a (T, B, E).

    Returns:
        attentional vectors (B, T, E), attention (B, T, S), and the last state. It can be
        differentiated once.
    """
    fed, attention, hidden, cell, last = _RecurAndAttend.apply(  # type: ignore[no-untyped-call]
        gates, keys, values, mask, *state, *weights, *kept
    )
    return fed, attention, (hidden, cell, last)


class _RecurAndAttend(torch.autograd.Function):
    """Time comes first in all that is kept; ``wide`` is the precision of state and softmax."""

    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        hidden: Tensor,
        cell: Tensor,
        vector: Tensor,
        feed: Tensor,
        recurrent: Tensor,
        readout: Tensor,
        bias: Tensor,
        kept_tops: Tensor | None,
        kept_vectors: Tensor | None,
    ) -> tuple[Tensor, ...]:
        dtype = gates.dtype
        wide = torch.promote_types(dtype, torch.float32)
        keys, values = keys.to(dtype).contiguous(), values.to(dtype).contiguous()
        (B, S, D), D_v, E = keys.shape, values.shape[2], vector.shape[1]
        # One product takes the vector and the state to the gates.
        to_gates = torch.cat([feed, recurrent], dim=1).to(dtype)  # (4 D, E + D)
        to_vector, bias = readout.to(dtype), bias.to(dtype)
        to_gates_t, to_vector_t = to_gates.t().contiguous(), to_vector.t().contiguous()
        hide = torch.zeros(B, S, dtype=wide, device=mask.device).masked_fill_(~mask, -torch.inf)
        gates = gates.transpose(0, 1).contiguous()
        T = len(gates)
        tape = LstmTape.blank(T, cell, dtype)
        before = keys.new_empty(T + 1, B, E + D)  # the vector and the state that a step starts from
        read = keys.new_empty(T, B, D_v + D)  # the context and the state that attended
        attention, vectors = hide.new_empty(T, B, S), keys.new_empty(T, B, E)  # before dropout
        before[0, :, :E], before[0, :, E:] = vector, hidden
        for t in range(T):
            hidden = tape.step(t, torch.addmm(gates[t], before[t], to_gates_t))
            before[t + 1, :, E:] = hidden
            context, top = read[t].split([D_v, D], dim=1)
            top.copy_(before[t + 1, :, E:])
            if kept_tops is not None:
                top.mul_(kept_tops[t])
            scores = dot_each(keys, top)
            attention[t] = torch.softmax(scores + hide, dim=-1)
            context.copy_(torch.bmm(attention[t].to(dtype)[:, None], values).squeeze(1))
            torch.tanh(torch.addmm(bias, read[t], to_vector_t), out=vectors[t])
            if kept_vectors is None:
                before[t + 1, :, :E] = vectors[t]
            else:
                torch.mul(vectors[t], kept_vectors[t], out=before[t + 1, :, :E])
        ctx.save_for_backward(
            *tape, before, read, attention, vectors, kept_tops, kept_vectors,
            keys, values, to_gates, to_vector,
        )  # fmt: skip
        last = before[-1, :, :E].to(wide)
        by_sentence = (before[1:, :, :E].transpose(0, 1), attention.transpose(0, 1))
        return *by_sentence, hidden.clone(), tape.cells[-1].clone(), last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (
            *taped, before, read, attention, vectors, kept_tops, kept_vectors,
            keys, values, to_gates, to_vector,
        ) = ctx.saved_tensors  # fmt: skip
        tape = LstmTape(*taped)
        T, E, D_v = len(vectors), vectors.shape[2], values.shape[2]
        dtype, wide = keys.dtype, attention.dtype
        d_given, d_attention = (x.transpose(0, 1).contiguous() for x in grads[:2])
        d_hidden, d_cell, d_vector = (x.to(wide) for x in grads[2:])
        d_gates = torch.empty_like(tape.activations)
        d_mapped, d_read = torch.empty_like(vectors), torch.empty_like(read)
        d_scores = attention.new_empty(attention.shape, dtype=dtype)
        for t in reversed(range(T)):
            d_vector = d_vector + d_given[t]
            if kept_vectors is not None:
                d_vector = d_vector * kept_vectors[t]
            d_mapped[t] = tanh_backward(d_vector.to(dtype), vectors[t])
            torch.mm(d_mapped[t], to_vector, out=d_read[t])
            d_context, d_top = d_read[t].split([D_v, keys.shape[2]], dim=1)
            d_weights = dot_each(values, d_context) + d_attention[t]
            d_scores[t] = softmax_backward(d_weights, attention[t], -1, wide)
            d_top = d_top + torch.bmm(d_scores[t][:, None], keys).squeeze(1)
            d_hidden = d_hidden + (d_top if kept_tops is None else d_top * kept_tops[t])
            d_cell = tape.back(t, d_hidden, d_cell, d_gates[t])
            d_vector, d_hidden = (d_gates[t] @ to_gates).to(wide).split([E, keys.shape[2]], dim=1)
        d_to_gates = d_gates.flatten(0, 1).t() @ before[:-1].flatten(0, 1)
        d_rows = d_mapped.flatten(0, 1)
        tops, d_contexts = read[:, :, D_v:], d_read[:, :, :D_v]
        return (
            d_gates.transpose(0, 1),
            torch.bmm(d_scores.permute(1, 2, 0), tops.transpose(0, 1)),
            torch.bmm(attention.to(dtype).permute(1, 2, 0), d_contexts.transpose(0, 1)),
            None,
            d_hidden,
            d_cell,
            d_vector,
            d_to_gates[:, :E],
            d_to_gates[:, E:],
            d_rows.t() @ read.flatten(0, 1),
            d_rows.sum(0),
            None,
            None,
        )
