"""Bahdanau's decoder over all steps of a batch, with its way back written out.

What a step attends to depends on the state that the step before left, so no step can be taken
early. Autograd would keep a dozen tensors a step and, on the way back, form the gradient of every
weight anew at each. Here the way back collects what each step contributes and forms the gradient
of each weight once, in one product over all steps. ``Bahdanau.step_by_step`` says the same in plain
words, and the tests hold the two together.

A score is taken as 2 v . sigmoid(2 x) instead of v . tanh(x): as tanh(x) = 2 sigmoid(2 x) - 1, it
is larger by the sum of v at every word alike, to which a softmax is blind, and a CPU takes a
sigmoid three times as fast.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nmt_cli.models.lstm_loop import LstmTape, dot_each, sigmoid_backward, softmax_backward


def attend_and_recur(
    gates: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    state: tuple[Tensor, Tensor],
    weights: tuple[Tensor, Tensor, Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Take all steps of a decoder of one LSTM layer that attends before it recurs.

    With s the hidden state and W, v, R, U the weights, a step is (Bahdanau et al. 2015, appendix A)

        e_j = v . tanh(W s + keys_j),  c = sum_j softmax(e)_j values_j,
        s, cell = lstm_step(gates + R c, U s, cell).

    Args:
        gates: (B, T, 4 D), what the target embeddings contribute to the gates i, f, g, o.
        keys: (B, S, D).
        values: (B, S, D_v).
        mask: (B, S) bool, True = a real token.
        state: hidden state and cell before the first step, each (B, D), in at least fp32.
        weights: W (D, D), v (1, D), R (4 D, D_v) and U (4 D, D).

    Returns:
        hidden states (B, T, D), contexts (B, T, D_v), attention (B, T, S), and the last state.
        It can be differentiated once.
    """
    tops, contexts, attention, hidden, cell = _AttendAndRecur.apply(  # type: ignore[no-untyped-call]
        gates, keys, values, mask, *state, *weights
    )
    return tops, contexts, attention, (hidden, cell)


class _AttendAndRecur(torch.autograd.Function):
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
        query: Tensor,
        energy: Tensor,
        fed: Tensor,
        recurrent: Tensor,
    ) -> tuple[Tensor, ...]:
        dtype = gates.dtype
        wide = torch.promote_types(dtype, torch.float32)
        keys, values = keys.to(dtype).contiguous(), values.to(dtype).contiguous()
        (B, S, D), D_v = keys.shape, values.shape[2]
        # One product takes the state both to twice its query and to its part of the gates.
        from_state = torch.cat([2 * query, recurrent]).to(dtype)  # (5 D, D)
        from_context = fed.to(dtype)  # (4 D, D_v)
        from_state_t, from_context_t = from_state.t().contiguous(), from_context.t().contiguous()
        twice_keys, twice_v = 2 * keys, 2 * energy.to(dtype).flatten()
        hide = torch.zeros(B, S, dtype=wide, device=mask.device).masked_fill_(~mask, -torch.inf)
        gates = gates.transpose(0, 1).contiguous()
        T = len(gates)
        scored = keys.new_empty(T, B, S, D)  # sigmoid(2 (W s + keys))
        attention, contexts = hide.new_empty(T, B, S), values.new_empty(T, B, D_v)
        tape, hiddens = LstmTape.blank(T, cell, dtype), keys.new_empty(T + 1, B, D)
        hiddens[0] = hidden
        for t in range(T):
            mapped = hiddens[t] @ from_state_t
            torch.add(twice_keys, mapped[:, None, :D], out=scored[t]).sigmoid_()
            scores = torch.mv(scored[t].view(B * S, D), twice_v).view(B, S)
            attention[t] = torch.softmax(scores + hide, dim=-1)
            contexts[t] = torch.bmm(attention[t].to(dtype)[:, None], values).squeeze(1)
            summed = torch.addmm(gates[t], contexts[t], from_context_t).add_(mapped[:, D:])
            hidden = tape.step(t, summed)
            hiddens[t + 1] = hidden
        ctx.save_for_backward(
            *tape, scored, attention, contexts, hiddens, values, from_state, from_context, twice_v,
        )  # fmt: skip
        by_sentence = (x.transpose(0, 1) for x in (hiddens[1:], contexts, attention))
        return *by_sentence, hidden.clone(), tape.cells[-1].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (
            *taped, scored, attention, contexts, hiddens, values, from_state, from_context, twice_v,
        ) = ctx.saved_tensors  # fmt: skip
        tape = LstmTape(*taped)
        T, B, S, D = scored.shape
        dtype, wide = scored.dtype, attention.dtype
        d_tops, d_contexts, d_attention = (x.transpose(0, 1).contiguous() for x in grads[:3])
        d_hidden, d_cell = grads[3].to(wide), grads[4].to(wide)
        d_twice_keys = scored.new_zeros(B, S, D)
        d_mapped = scored.new_empty(T, B, 5 * D)  # of twice the query, then of the gates
        d_used, d_scores = torch.empty_like(contexts), scored.new_empty(T, B, S)
        for t in reversed(range(T)):
            d_hidden = d_hidden + d_tops[t]
            d_query, d_gates = d_mapped[t].split([D, 4 * D], dim=1)
            d_cell = tape.back(t, d_hidden, d_cell, d_gates)
            torch.addmm(d_contexts[t], d_mapped[t, :, D:], from_context, out=d_used[t])
            d_weights = dot_each(values, d_used[t]) + d_attention[t]
            d_scores[t] = softmax_backward(d_weights, attention[t], -1, wide)
            d_sums = sigmoid_backward(d_scores[t].unsqueeze(2) * twice_v, scored[t])  # (B, S, D)
            d_twice_keys += d_sums
            torch.sum(d_sums, dim=1, out=d_query)
            d_hidden = (d_mapped[t] @ from_state).to(wide)
        by_row = d_mapped.view(T * B, 5 * D)
        d_from_state = by_row.t() @ hiddens[:-1].reshape(T * B, D)
        d_from_context = by_row[:, D:].t() @ contexts.view(T * B, -1)
        d_values = torch.bmm(attention.to(dtype).permute(1, 2, 0), d_used.transpose(0, 1))
        return (
            d_mapped[:, :, D:].transpose(0, 1),
            2 * d_twice_keys,
            d_values,
            None,
            d_hidden,
            d_cell,
            2 * d_from_state[:D],
            2 * d_scores.view(1, -1) @ scored.view(-1, D),
            d_from_context,
            d_from_state[D:],
        )
