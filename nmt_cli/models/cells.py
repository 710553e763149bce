"""The kinds of recurrence: Elman's network, the GRU and the LSTM.

A step gets what the input and what the state before contribute to each gate, as two tensors,
because a GRU gates its state before it adds the two. The order of gates is torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

State = tuple[Tensor, ...]
"""What is carried from step to step: the hidden state first, the LSTM's cell second."""


class Cell(NamedTuple):
    """One kind of recurrence."""

    gates: int
    """How many times wider than the state the products of input and state are."""
    parts: int
    """Tensors of state."""
    layer: Callable[[int, int], nn.RNNBase]
    """Make a layer from the widths of input and state, batch first."""
    step: Callable[[Tensor, Tensor, State], State]
    """Take (B, gates * D) from the input and from the state, and the state (B, D): the next one."""


def rnn_step(from_input: Tensor, from_state: Tensor, state: State) -> State:
    """Step by h = tanh(x + W h) (Elman 1990)."""
    return (torch.tanh(from_input + from_state),)


def gru_step(from_input: Tensor, from_state: Tensor, state: State) -> State:
    """Step by h = z h + (1 - z) tanh(x + r (W h)) (Cho et al. 2014; r after the product)."""
    x_r, x_z, x_n = from_input.chunk(3, dim=-1)
    h_r, h_z, h_n = from_state.chunk(3, dim=-1)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    (h,) = state
    return (z * h + (1 - z) * torch.tanh(x_n + r * h_n),)


def lstm_step(from_input: Tensor, from_state: Tensor, state: State) -> State:
    """Step by c = f c + i tanh(g), h = o tanh(c) (Hochreiter & Schmidhuber 1997; Gers 2000)."""
    i, f, g, o = (from_input + from_state).chunk(4, dim=-1)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def rnn_layer(d_input: int, d_state: int) -> nn.RNNBase:
    """Make a layer of Elman's network."""
    return nn.RNN(d_input, d_state, batch_first=True)


def gru_layer(d_input: int, d_state: int) -> nn.RNNBase:
    """Make a GRU layer."""
    return nn.GRU(d_input, d_state, batch_first=True)


def lstm_layer(d_input: int, d_state: int) -> nn.RNNBase:
    """Make an LSTM layer; its two biases, which add up, open the forget gates."""
    lstm = nn.LSTM(d_input, d_state, batch_first=True)
    open_forget_gates(cast(Tensor, lstm.bias_ih_l0))
    with torch.no_grad():
        cast(Tensor, lstm.bias_hh_l0).zero_()
    return lstm


def open_forget_gates(bias: Tensor) -> None:
    """Set the forget part of an LSTM's (4 D,) bias to 1 (Jozefowicz et al. 2015)."""
    with torch.no_grad():
        bias.chunk(4)[1].fill_(1.0)


RNN = Cell(1, 1, rnn_layer, rnn_step)
GRU = Cell(3, 1, gru_layer, gru_step)
LSTM = Cell(4, 2, lstm_layer, lstm_step)

CELLS: dict[type[nn.Module], Cell] = {nn.RNN: RNN, nn.GRU: GRU, nn.LSTM: LSTM}
"""By the class of torch's layer."""
