"""Agreement with independent implementations: torch's own modules and the papers' equations."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt_cli.models import Vocabulary, architecture
from nmt_cli.models.attention import make_attention, scaled_dot_weights
from nmt_cli.models.base import flip_index, select
from nmt_cli.models.cells import GRU, LSTM, RNN
from nmt_cli.models.dropout import Dropout, scaled_mask
from nmt_cli.models.feeding_loop import recur_and_attend
from nmt_cli.models.positions import sinusoid
from nmt_cli.models.recurrent_layers import Encoder, RecurrentOptions, run_side_by_side
from nmt_cli.models.transformer import TransformerOptions
from nmt_cli.models.transformer import build as build_transformer

CLOSE = {"rtol": 0.0, "atol": 1e-10}
V = 17


def mask_of(lengths, longest):
    return torch.arange(longest) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("layers", [1, 2])
def test_the_bidirectional_encoder_equals_torchs_on_packed_sequences(layers):
    options = RecurrentOptions(d_model=10, d_embed=6, layers=layers, dropout=0.0)
    ours = Encoder(options, LSTM).double()
    theirs = nn.LSTM(6, 5, layers, bidirectional=True, batch_first=True).double()
    with torch.no_grad():
        for layer in range(layers):
            for suffix, stack in (("", ours.forwards), ("_reverse", ours.backwards)):
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                    source = getattr(stack[layer], f"{name}_l0")
                    getattr(theirs, f"{name}_l{layer}{suffix}").copy_(source)
    lengths = [7, 1, 4]
    x = torch.randn(3, 7, 6, dtype=torch.float64)
    outputs, final = ours(x, mask_of(lengths, 7))
    packed = pack_padded_sequence(x, torch.tensor(lengths), True, enforce_sorted=False)
    expected, (hidden, _) = theirs(packed)
    expected, _ = pad_packed_sequence(expected, batch_first=True)
    mask = mask_of(lengths, 7)
    torch.testing.assert_close(outputs[mask], expected[mask], **CLOSE)
    torch.testing.assert_close(final, torch.cat([hidden[-2], hidden[-1]], -1), **CLOSE)


def test_reversing_the_source_reads_it_backwards_within_its_length():
    options = RecurrentOptions(d_model=4, d_embed=3, bidirectional=False, dropout=0.0)
    plain = Encoder(options, LSTM).double()
    backwards = Encoder(
        RecurrentOptions(**{**vars(options), "reverse_source": True}), LSTM
    ).double()
    backwards.load_state_dict(plain.state_dict())
    x = torch.randn(1, 4, 3, dtype=torch.float64)
    mask = mask_of([3], 4)
    turned = torch.cat([x[:, :3].flip(1), x[:, 3:]], 1)
    torch.testing.assert_close(backwards(x, mask)[1], plain(turned, mask)[1], **CLOSE)
    assert flip_index(mask).tolist() == [[2, 1, 0, 3]]


@pytest.mark.parametrize(
    ("cell", "theirs"), [(RNN, nn.RNNCell), (GRU, nn.GRUCell), (LSTM, nn.LSTMCell)]
)
def test_a_step_of_each_cell_equals_torchs(cell, theirs):
    theirs = theirs(5, 4).double()
    x = torch.randn(3, 5, dtype=torch.float64)
    state = tuple(torch.randn(3, 4, dtype=torch.float64) for _ in range(cell.parts))
    from_input = x @ theirs.weight_ih.T + theirs.bias_ih
    from_state = state[0] @ theirs.weight_hh.T + theirs.bias_hh
    expected = theirs(x, state if cell.parts > 1 else state[0])
    expected = expected if cell.parts > 1 else (expected,)
    for ours, other in zip(cell.step(from_input, from_state, state), expected, strict=True):
        torch.testing.assert_close(ours, other, **CLOSE)


def test_a_gru_has_three_quarters_of_the_recurrent_parameters_of_an_lstm():
    gru, lstm = (sum(p.numel() for p in cell.layer(7, 8).parameters()) for cell in (GRU, LSTM))
    assert gru / lstm == 3 / 4


@pytest.mark.parametrize("name", ["rnn-attn", "gru-attn", "lstm-attn"])
def test_cells_taken_step_by_step_equal_torchs_layers(name):
    """A decoder of steps that is fed nothing equals one that runs over all in one call."""
    stack, steps = build(name, attention="luong-dot"), build(name, attention="bahdanau")
    layer, cells = stack.decoder.layers[0], steps.decoder
    with torch.no_grad():
        cells.embedded.weight.copy_(layer.weight_ih_l0)
        cells.embedded.bias.copy_(layer.bias_ih_l0)
        cells.recurrent[0].weight.copy_(layer.weight_hh_l0)
        if cells.recurrent[0].bias is None:
            cells.embedded.bias += layer.bias_hh_l0
        else:
            cells.recurrent[0].bias.copy_(layer.bias_hh_l0)
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    state = stack.begin(torch.randn(2, 6, dtype=torch.float64))
    expected, after = stack.decoder(x, state)
    outputs = []
    for gates in cells.embedded(x).unbind(1):
        top, state = cells.step(gates, torch.zeros(2, 6, dtype=torch.float64), state)
        outputs.append(top)
    torch.testing.assert_close(torch.stack(outputs, 1), expected, **CLOSE)
    for ours, other in zip(state, after, strict=True):
        torch.testing.assert_close(ours, other, **CLOSE)


def test_residuals_add_what_a_layer_reads():
    """With upper layers that give nothing, a deep residual encoder equals its first layer."""
    options = RecurrentOptions(d_model=6, d_embed=4, layers=3, residual=True, dropout=0.0)
    encoder = Encoder(options, GRU).double()
    for layer in (*encoder.forwards[1:], *encoder.backwards[1:]):
        for parameter in layer.parameters():
            nn.init.zeros_(parameter)
    x, mask = torch.randn(2, 5, 4, dtype=torch.float64), mask_of([5, 3], 5)
    outputs, final = encoder(x, mask)
    forwards, _ = encoder.forwards[0](x)
    torch.testing.assert_close(outputs[..., :3], forwards, **CLOSE)
    torch.testing.assert_close(final[1, :3], forwards[1, 2], **CLOSE)


def build(name, **options):
    arch = architecture(name)
    model = arch.build(
        arch.options(d_model=6, d_embed=4, dropout=0.0, **options), Vocabulary(V, V, True)
    )
    return model.double().eval()


def naive_score(kind, attention, s, h, covered):
    """Score one decoder state against one memory vector, by the paper's formula."""
    score = attention.score
    if kind == "luong-dot":
        return s @ h
    if kind == "scaled-dot":
        return s @ h / math.sqrt(len(s))
    if kind in {"luong-general", "local-m", "local-p"}:
        return s @ (score.memory.weight @ h)
    W = torch.cat([score.query.weight, score.memory.weight], 1)
    told = attention.covered * covered if hasattr(attention, "covered") else 0
    return score.energy.weight[0] @ torch.tanh(W @ torch.cat([s, h]) + score.memory.bias + told)


def naive_context(kind, attention, s, values, length, t=0, coverage=None):
    """Attend over the words of the window, if there is one: context and weights (length,)."""
    covered = coverage if coverage is not None else torch.zeros(length)
    centre, reach, bell = 0, length, torch.ones(length).double()
    if kind == "local-m":
        centre, reach = min(t, length - 1), attention.focus.reach
    if kind == "local-p":
        inner, outer, reach = attention.focus.inner, attention.focus.outer, attention.focus.reach
        centre = length * torch.sigmoid(outer.weight[0] @ torch.tanh(inner.weight @ s))
        bell = torch.exp(-((torch.arange(length) - centre) ** 2) / (2 * (reach / 2) ** 2))
    window = [j for j in range(length) if abs(j - centre) <= reach]
    energies = [naive_score(kind, attention, s, values[j], covered[j]) for j in window]
    weights = torch.zeros(length).double()
    weights[window] = torch.stack(energies).softmax(0)
    weights = weights * bell
    return sum(w * values[j] for j, w in enumerate(weights)), weights


def stepped_weights(decoder):
    """One matrix over the embedding, what is fed, and the hidden state."""
    parts = (decoder.embedded, decoder.fed, decoder.recurrent[0])
    return torch.cat([part.weight for part in parts], 1)


def naive_cell(x, h, c, W, bias):
    i, f, g, o = (W @ torch.cat([x, h]) + bias).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


KINDS = ["luong-dot", "luong-general", "luong-concat", "scaled-dot", "local-m", "local-p"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("input_feeding", [False, True])
def test_luong_equals_a_loop_over_the_paper(kind, input_feeding):
    """Luong et al. 2015, equations 5 to 10 and section 3.3."""
    window = {"reach": 1} if kind.startswith("local") else {}
    model = build("lstm-attn", attention=kind, input_feeding=input_feeding, **window)
    src, length, T = torch.randint(4, V, (1, 5)), 4, 6
    tgt = torch.randint(4, V, (1, T))
    memory = model.encode(src, mask_of([length], 5))
    decoded = model.decode(tgt, memory, model.start(memory), attention=True)
    values, (h, c) = memory[1][0], (part[0, 0] for part in model.start(memory)[0])
    feed = torch.zeros(4, dtype=torch.float64)
    for t in range(T):
        x = model.tgt_embedding.weight[tgt[0, t]] * math.sqrt(4)
        if input_feeding:
            W = stepped_weights(model.decoder)
            h, c = naive_cell(torch.cat([x, feed]), h, c, W, model.decoder.embedded.bias)
        else:
            lstm = model.decoder.layers[0]
            W = torch.cat([lstm.weight_ih_l0, lstm.weight_hh_l0], 1)
            h, c = naive_cell(x, h, c, W, lstm.bias_ih_l0 + lstm.bias_hh_l0)
        context, weights = naive_context(kind, model.attention, h, values, length, t)
        feed = torch.tanh(model.readout.weight @ torch.cat([context, h]) + model.readout.bias)
        torch.testing.assert_close(decoded.hidden[0, t], feed, **CLOSE)
        torch.testing.assert_close(decoded.attention[0][0, 0, t, :length], weights, **CLOSE)


@pytest.mark.parametrize("coverage", [False, True])
def test_bahdanau_equals_a_loop_over_the_paper(coverage):
    """Bahdanau et al. 2015, appendix A.2.2: attend with s of the step before, then recur."""
    model = build("lstm-attn", attention="bahdanau", coverage=coverage)
    src, length = torch.randint(4, V, (1, 5)), 5
    covered = torch.zeros(length).double()
    tgt = torch.randint(4, V, (1, 3))
    memory = model.encode(src, mask_of([length], 5))
    decoded = model.decode(tgt, memory, model.start(memory), attention=True)
    values, (h, c) = memory[1][0], (part[0, 0] for part in model.start(memory)[0])
    W = stepped_weights(model.decoder)
    for t in range(3):
        x = model.tgt_embedding.weight[tgt[0, t]] * math.sqrt(4)
        told = covered if coverage else None
        context, weights = naive_context("bahdanau", model.attention, h, values, length, t, told)
        covered = covered + weights
        h, c = naive_cell(torch.cat([x, context]), h, c, W, model.decoder.embedded.bias)
        out = torch.tanh(model.readout.weight @ torch.cat([context, h, x]) + model.readout.bias)
        torch.testing.assert_close(decoded.hidden[0, t], out, **CLOSE)
        torch.testing.assert_close(decoded.attention[0][0, 0, t], weights, **CLOSE)


@pytest.mark.parametrize("fed", [True, False])
def test_self_attention_equals_a_loop_over_the_paper(fed):
    """Cheng et al. 2016, equations 4 to 8, in Bahdanau's decoder or run over embeddings alone."""
    kind = "bahdanau" if fed else "luong-dot"
    model = build("lstm-attn", attention=kind, self_attention=True)
    stack, D = model.decoder, 6
    src_mask, tgt = mask_of([5], 5), torch.randint(4, V, (1, 4))
    memory = model.encode(torch.randint(4, V, (1, 5)), src_mask)
    decoded = model.decode(tgt, memory, model.start(memory), attention=True)
    values = memory[1][0]
    (h,), (c,) = (part[0] for part in model.begin(memory[3]))
    past, mean = [(h, c)], h
    parts = (stack.embedded, stack.fed) if fed else (stack.embedded,)
    W = torch.cat([part.weight for part in parts], 1)
    gates = torch.cat([W[: 4 * D], stack.recurrent[0].weight], 1)
    gates_bias, query_bias = stack.embedded.bias.split([4 * D, D])
    tape = torch.cat([stack.key[0].weight, W[4 * D :], stack.mean[0].weight], 1)
    for t in range(4):
        x = embedded = model.tgt_embedding.weight[tgt[0, t]] * math.sqrt(4)
        if fed:
            context, _ = naive_context(kind, model.attention, past[-1][0], values, 5)
            x = torch.cat([embedded, context])
        read = [torch.cat([h, x, mean]) for h, _ in past]
        energies = [
            stack.energy[0].weight[0] @ torch.tanh(tape @ each + query_bias) for each in read
        ]
        weights = torch.stack(energies).softmax(0)
        mean = sum(w * h for w, (h, _) in zip(weights, past, strict=True))
        cell = sum(w * c for w, (_, c) in zip(weights, past, strict=True))
        past.append(naive_cell(x, mean, cell, gates, gates_bias))
        h = past[-1][0]
        if not fed:
            context, _ = naive_context(kind, model.attention, h, values, 5)
        joined = torch.cat([context, h, embedded] if fed else [context, h])
        out = torch.tanh(model.readout.weight @ joined + model.readout.bias)
        torch.testing.assert_close(decoded.hidden[0, t], out, **CLOSE)


def test_multi_head_attention_equals_torchs():
    theirs = nn.MultiheadAttention(8, 2, batch_first=True).double()
    ours = make_attention("multi-head", 8, heads=2, reach=1, coverage=False).double()
    with torch.no_grad():
        parts = (ours.query, ours.key, ours.value)
        for part, weight, bias in zip(
            parts, theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True
        ):
            part.weight.copy_(weight)
            part.bias.copy_(bias)
        ours.out.load_state_dict(theirs.out_proj.state_dict())
    query, memory = (torch.randn(3, n, 8, dtype=torch.float64) for n in (4, 6))
    mask = mask_of([6, 2, 5], 6)
    context, weights, _ = ours(query, *ours.prepare(memory), mask, ())
    expected, by_head = theirs(
        query, memory, memory, key_padding_mask=~mask, average_attn_weights=False
    )
    torch.testing.assert_close(context, expected, **CLOSE)
    torch.testing.assert_close(weights, by_head, **CLOSE)


def tensors_of(tree):
    return [x for part in tree for x in tensors_of(part)] if isinstance(tree, tuple) else [tree]


def assert_fast_way_back_equals_autograds(model, dtype, begin, widths):
    """Results and gradients of ``all_steps`` are those of ``step_by_step``, padding and all.

    ``begin`` makes the state from tensors (B, 1, w), one for each of ``widths``.
    """
    B, S, T, D = 3, 5, 4, model.decoder.recurrent[0].in_features
    wide = torch.promote_types(dtype, torch.float32)
    model.to(wide)
    mask = mask_of([5, 2, 4], S)
    given = [torch.randn(*shape, dtype=dtype) for shape in ((B, T, 4 * D), (B, S, D), (B, S, D))]
    given += [torch.randn(B, 1, width, dtype=wide) for width in widths]
    given = [x.requires_grad_() for x in given]
    used = [model.decoder.fed, *model.decoder.recurrent]
    used += [model.readout] if len(widths) == 3 else [model.attention.score.query]
    weights = [parameter for module in used for parameter in module.parameters()]

    def outcome(way):
        gates, keys, values, *state = given
        results = tensors_of(way(gates, (keys, values, mask, None), begin(*state)))
        torch.manual_seed(1)
        total = sum((x * torch.randn(x.shape, dtype=wide)).sum() for x in results)
        return [*results, *torch.autograd.grad(total, [*given, *weights])]

    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        fast, slow = outcome(model.all_steps), outcome(model.step_by_step)
    close = {"rtol": 1e-10, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 0, "atol": 0.1}
    for ours, theirs in zip(fast, slow, strict=True):
        torch.testing.assert_close(ours.to(wide), theirs.to(wide), **close)


@pytest.mark.parametrize("given_state", [False, True])
def test_lstms_side_by_side_have_the_results_and_gradients_of_torchs(given_state):
    layers = [nn.LSTM(3, 4, batch_first=True).double() for _ in range(2)]
    inputs = [torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    states = [[torch.randn(2, 4).double().requires_grad_() for _ in range(2)] for _ in range(2)]
    ours = run_side_by_side(layers, inputs, states if given_state else None)
    theirs = []
    for layer, x, state in zip(layers, inputs, states, strict=True):
        first = tuple(part.unsqueeze(0) for part in state) if given_state else None
        outputs, after = layer(x, first)
        theirs.append((outputs, tuple(part.squeeze(0) for part in after)))
    sources = [*(weight for layer in layers for weight in layer.parameters()), *inputs]
    sources += [part for state in states for part in state if given_state]
    both = []
    for results in (tensors_of(tuple(ours)), tensors_of(tuple(theirs))):
        torch.manual_seed(1)
        total = sum((x * torch.randn_like(x)).sum() for x in results)
        both.append([*results, *torch.autograd.grad(total, sources)])
    for mine, torchs in zip(*both, strict=True):
        torch.testing.assert_close(mine, torchs, **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_bahdanaus_fast_way_back_equals_autograds(dtype):
    model = build("lstm-attn", attention="bahdanau")
    D = model.decoder.recurrent[0].in_features
    assert_fast_way_back_equals_autograds(
        model, dtype, lambda hidden, cell: ((hidden, cell), ()), [D, D]
    )


@pytest.mark.parametrize("attention", ["luong-dot", "luong-general"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_input_feedings_fast_way_back_equals_autograds(attention, dtype):
    model = build("lstm-attn", attention=attention, input_feeding=True).eval()
    D = model.decoder.recurrent[0].in_features
    assert_fast_way_back_equals_autograds(
        model,
        dtype,
        lambda hidden, cell, feed: ((hidden, cell), (), feed.squeeze(1)),
        [D, D, model.d_embed],
    )


def test_input_feedings_way_back_with_dropout_passes_a_gradient_check():
    B, S, T, D, E = 2, 3, 3, 4, 3
    shapes = [(B, T, 4 * D), (B, S, D), (B, S, D), (B, D), (B, D), (B, E)]
    shapes += [(4 * D, E), (4 * D, D), (E, 2 * D), (E,)]
    given = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    drop = nn.Dropout(0.4)
    kept = tuple(drop(torch.ones(T, B, width, dtype=torch.float64)) for width in (D, E))

    def steps(gates, keys, values, *rest):
        state, weights = rest[:3], rest[3:]
        fed, attention, after = recur_and_attend(
            gates, keys, values, mask_of([3, 2], S), state, weights, kept
        )
        assert torch.equal(fed[:, -1] == 0, kept[1][-1] == 0)
        return fed, attention, *after

    assert torch.autograd.gradcheck(steps, given)


def copy_attention(ours, theirs):
    """Copy the weights of one of our attention layers from ``nn.MultiheadAttention``."""
    D = theirs.embed_dim
    if hasattr(ours, "qkv"):
        ours.qkv.weight.copy_(theirs.in_proj_weight)
        ours.qkv.bias.copy_(theirs.in_proj_bias)
    else:
        ours.query.weight.copy_(theirs.in_proj_weight[:D])
        ours.query.bias.copy_(theirs.in_proj_bias[:D])
        ours.key_value.weight.copy_(theirs.in_proj_weight[D:])
        ours.key_value.bias.copy_(theirs.in_proj_bias[D:])
    ours.out.load_state_dict(theirs.out_proj.state_dict())


def copy_rest(ours, theirs, norms):
    ours.channels.inner.load_state_dict(theirs.linear1.state_dict())
    ours.channels.outer.load_state_dict(theirs.linear2.state_dict())
    for mine, name in zip(norms, ("norm1", "norm2", "norm3"), strict=False):
        mine.norm.load_state_dict(getattr(theirs, name).state_dict())


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_the_transformer_equals_torchs_with_copied_weights(norm):
    D, H, F = 8, 2, 12
    torch.manual_seed(3)
    theirs = (
        nn.Transformer(D, H, 2, 2, F, dropout=0.0, batch_first=True, norm_first=norm == "pre")
        .double()
        .eval()
    )
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    if norm == "post":  # torch adds a last norm in either case, the paper has none
        theirs.encoder.norm, theirs.decoder.norm = None, None
    options = TransformerOptions(
        d_model=D, heads=H, d_ffn=F, encoder_layers=2, decoder_layers=2, norm=norm, dropout=0.0
    )
    ours = build_transformer(options, Vocabulary(V, V, True)).double().eval()
    with torch.no_grad():
        for mine, other in zip(ours.encoder, theirs.encoder.layers, strict=True):
            copy_attention(mine.mixer, other.self_attn)
            copy_rest(mine, other, (mine.around_mixer, mine.around_channels))
        for mine, other in zip(ours.decoder, theirs.decoder.layers, strict=True):
            copy_attention(mine.mixer, other.self_attn)
            copy_attention(mine.cross, other.multihead_attn)
            norms = (mine.around_mixer, mine.around_cross, mine.around_channels)
            copy_rest(mine, other, norms)
        if norm == "pre":
            ours.encoder_norm.load_state_dict(theirs.encoder.norm.state_dict())
            ours.decoder_norm.load_state_dict(theirs.decoder.norm.state_dict())
    src, tgt = torch.randint(4, V, (3, 6)), torch.randint(4, V, (3, 5))
    mask = mask_of([6, 2, 4], 6)
    memory = ours.encode(src, mask)
    hidden = ours.decode(tgt, memory, ours.start(memory)).hidden

    def embed(tokens):
        positions = sinusoid(torch.arange(tokens.shape[1]), D).double()
        return ours.tgt_embedding.weight[tokens] * math.sqrt(D) + positions

    expected = theirs(
        embed(src),
        embed(tgt),
        tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1),
        src_key_padding_mask=~mask,
        memory_key_padding_mask=~mask,
    )
    torch.testing.assert_close(hidden, expected, **CLOSE)


def test_sinusoids_are_those_of_section_3_5():
    positions = sinusoid(torch.tensor([0, 3, 250]), 6)
    for row, pos in enumerate((0, 3, 250)):
        for i in range(3):
            angle = pos / 10000 ** (2 * i / 6)
            assert positions[row, 2 * i] == pytest.approx(math.sin(angle), abs=1e-4)
            assert positions[row, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-4)


def test_scaled_dot_weights_equal_torchs_attention():
    q, k, v = (torch.randn(2, 3, n, 4, dtype=torch.float64) for n in (5, 6, 6))
    mask = mask_of([6, 2], 6)[:, None, None, :]
    expected = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(scaled_dot_weights(q, k, mask) @ v, expected, **CLOSE)


def test_concat_scores_with_one_matrix_over_both():
    attention = make_attention("luong-concat", 4, heads=1, reach=1, coverage=False)
    score = attention.double().score
    s, h = torch.randn(1, 1, 4).double(), torch.randn(1, 3, 4).double()
    scores = score(s, score.keys(h))[0, 0]
    for j in range(3):
        expected = naive_score("luong-concat", attention, s[0, 0], h[0, j], 0)
        torch.testing.assert_close(scores[j], expected, **CLOSE)


@pytest.mark.parametrize("stream", [torch.float32, torch.bfloat16])
def test_dropout_in_one_pass_with_the_sum_is_dropout_and_then_the_sum(stream):
    dropout, x, result = Dropout(0.3), torch.randn(50, 40, dtype=stream), torch.randn(50, 40)
    torch.manual_seed(1)
    fused = dropout.added_to(x, result)
    torch.manual_seed(1)
    torch.testing.assert_close(fused, x + dropout(result))
    assert torch.equal(dropout.eval().added_to(x, result), x + result)


@pytest.mark.parametrize("p", [0.004, 0.05, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_dropout_keeps_the_stated_share_and_the_mean(p):
    x = torch.ones(1000, 1003)
    mask = scaled_mask(x, p)
    noise = 4 * math.sqrt(p * (1 - p) / x.numel())
    dropped = (mask == 0).float().mean().item()
    assert dropped == pytest.approx(p, abs=0.02 * p + noise)
    assert mask.max().item() == pytest.approx(1 / (1 - p), rel=0.02)
    assert mask.mean().item() == pytest.approx(1.0, abs=noise / (1 - p) + 1e-6)
    lanes = (mask.flatten()[: 8 * 125_000].view(-1, 8) == 0).float().mean(0)
    torch.testing.assert_close(lanes, torch.full((8,), dropped), rtol=0, atol=5 * noise)


def test_dropout_does_nothing_when_evaluating():
    x = torch.randn(3, 4)
    assert Dropout(0.5).eval()(x) is x


@pytest.mark.parametrize("variant", architecture("transformer").variants, ids=str)
def test_fused_attention_gives_what_is_written_out(monkeypatch, variant):
    """What a GPU runs, by the same kernel's CPU form."""
    torch.manual_seed(5)
    arch = architecture("transformer")
    options = arch.options(**{**arch.sizes["tiny"], "dropout": 0.0, **variant})
    model = arch.build(options, Vocabulary(V, V, True)).double()
    src, tgt = torch.randint(4, V, (3, 6)), torch.randint(4, V, (6, 5))
    mask = mask_of([6, 2, 4], 6)

    def outcome():
        model.zero_grad()
        memory = model.encode(src, mask)
        state = select(model.start(memory), torch.arange(3).repeat_interleave(2))
        first = model.decode(tgt[:, :3], memory, state)
        second = model.decode(tgt[:, 3:4], memory, first.state)
        third = model.decode(tgt[:, 3:], memory, first.state)
        logits = model.project(torch.cat([x.hidden for x in (first, second, third)], 1))
        logits.square().sum().backward()
        return logits, [p.grad for p in model.parameters() if p.grad is not None]

    written_out = outcome()
    for module in ("transformer", "stack"):
        monkeypatch.setattr(f"nmt_cli.models.{module}.prefers_fused", lambda q: True)
    fused = outcome()
    torch.testing.assert_close(fused, written_out, rtol=1e-9, atol=1e-9)
    memory = model.encode(src, mask)
    shown = model.decode(tgt[::2], memory, model.start(memory), attention=True).attention
    assert len(shown) == (options.decoder_layers if options.cross_attention else 0)
