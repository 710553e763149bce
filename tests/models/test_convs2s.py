"""ConvS2S against a loop over the paper's equations, and where its positions end."""

import math

import pytest
import torch

from nmt_cli.errors import NmtError
from nmt_cli.models import Vocabulary
from nmt_cli.models.convs2s import ConvOptions, ConvS2S
from nmt_cli.models.ensemble import Ensemble
from nmt_cli.search import SearchOptions, search
from nmt_cli.tokenizer import EOS

V, D, K = 13, 6, 3
HALF = math.sqrt(0.5)


def build(**options):
    torch.manual_seed(2)
    options = ConvOptions(
        d_model=D, kernel=K, encoder_layers=2, decoder_layers=2, dropout=0.0, **options
    )
    return ConvS2S(options, Vocabulary(V, V, True)).double().eval()


def gated(convolution, rows):
    """One output of a convolution: the K inputs, a linear map, half gating half."""
    value, gate = convolution.window(torch.cat(rows)).split(D)
    return value * torch.sigmoid(gate)


def test_convs2s_equals_a_loop_over_the_paper():
    """Gehring et al. 2017, sections 3.2 and 3.3, one position at a time."""
    model, S, T = build(), 5, 4
    src, tgt = torch.randint(4, V, (1, S)), torch.randint(4, V, (1, T))
    memory = model.encode(src, torch.ones(1, S, dtype=torch.bool))
    decoded = model.decode(tgt, memory, model.start(memory), attention=True)

    def embed(side, token, t):
        return side.words.weight[token] + side.positions.weight[t]

    zero = torch.zeros(D).double()
    embedded = [embed(model.src_embedding, token, t) for t, token in enumerate(src[0])]
    x = [model.into_encoder(e) for e in embedded]
    for convolution in model.encoder:
        filled = [zero, *x, zero]
        x = [(x[t] + gated(convolution, filled[t : t + K])) * HALF for t in range(S)]
    keys = [model.out_of_encoder(z) for z in x]
    values = [(z + e) * HALF for z, e in zip(keys, embedded, strict=True)]

    prefix = [embed(model.tgt_embedding, token, t) for t, token in enumerate(tgt[0])]
    x = [model.into_decoder(e) for e in prefix]
    for layer, (convolution, attend) in enumerate(
        zip(model.decoder, model.attentions, strict=True)
    ):
        filled, new = [zero] * (K - 1) + x, []
        for t in range(T):
            h = gated(convolution, filled[t : t + K])
            query = (attend.query(h) + prefix[t]) * HALF
            weights = torch.stack([query @ key for key in keys]).softmax(0)
            context = sum(w * v for w, v in zip(weights, values, strict=True)) * math.sqrt(S)
            new.append((x[t] + (h + attend.out(context)) * HALF) * HALF)
            torch.testing.assert_close(decoded.attention[layer][0, 0, t], weights)
        x = new
    hidden = torch.stack([model.out_of_decoder(h) for h in x])
    torch.testing.assert_close(decoded.hidden[0], hidden, rtol=0, atol=1e-10)


def test_the_search_never_writes_past_the_last_position():
    model = build(max_positions=6)
    with torch.no_grad():
        model.projection.bias[EOS] = -1e4  # it would go on for ever
    src = torch.randint(4, V, (1, 5))
    mask = torch.ones_like(src, dtype=torch.bool)
    for searched in (model, Ensemble([model, build(max_positions=9)]).double().eval()):
        best = search(searched, src, mask, SearchOptions(beam=2, max_length=50))
        assert len(best[0][0].tokens) == 5  # and the end


def test_past_the_last_position_there_is_a_clear_error():
    model = build(max_positions=6)
    mask = torch.ones(1, 7, dtype=torch.bool)
    with pytest.raises(NmtError, match="max_positions=6"):
        model.encode(torch.randint(4, V, (1, 7)), mask)
    memory = model.encode(torch.randint(4, V, (1, 6)), mask[:, :6])
    state = model.decode(torch.randint(4, V, (1, 6)), memory, model.start(memory)).state
    with pytest.raises(NmtError, match="max_positions=6"):
        model.decode(torch.randint(4, V, (1, 1)), memory, state)
