import copy
import itertools
import json
import math

import pytest
import torch
from torch.nn import functional as F

from nmt_cli.batches import BatchSize, HeldIds, Position, TrainingBatches, collate, with_ends
from nmt_cli.divergence import MOST_SKIPPED, Diverged, Health
from nmt_cli.errors import WorkFailed
from nmt_cli.events import SaveDue, Score, Skipped, Step, Stopped, Validated
from nmt_cli.loss import loss_and_gradient
from nmt_cli.models import Vocabulary, architecture
from nmt_cli.precision import (
    Precision,
    choose_device,
    choose_training_precision,
    choose_translation_precision,
    cpu_has_bf16,
    use_exact_kernels,
    use_fast_kernels,
)
from nmt_cli.schedule import TrainingOptions, learning_rate
from nmt_cli.teacher_forcing import backward, target_hidden
from nmt_cli.training import Trainer, weights_of

V = 29
FP32 = Precision("fp32", "")


def options(**changes) -> TrainingOptions:
    values = {
        "lr": 5e-3, "warmup": 4, "schedule": "inverse-sqrt", "accumulate": 1,
        "label_smoothing": 0.1, "clip_norm": 1.0, "weight_decay": 0.0, "betas": (0.9, 0.98),
        "validate_every": 5, "save_every": 5, "average": 3, "patience": 0, "last_step": 12,
        "minutes": None,
    }  # fmt: skip
    return TrainingOptions(**{**values, **changes})


def make_pairs(count=24):
    generator = torch.Generator().manual_seed(5)
    rows = [torch.randint(4, V, (2 + n % 5,), generator=generator).tolist() for n in range(count)]
    return [with_ends(row, row[::-1]) for row in rows]


def make_trainer(scores=None, precision=FP32, arch="lstm-attn", **changes):
    torch.manual_seed(7)
    kind = architecture(arch)
    model = kind.build(
        kind.options(**{**kind.sizes["tiny"], "dropout": 0.2}), Vocabulary(V, V, True)
    )
    given = iter(scores or [])
    validate = lambda *_: next(given, Score(0.0, 1.0))  # noqa: E731
    batches = TrainingBatches(HeldIds(make_pairs()), BatchSize(30), seed=1)
    return Trainer(model, batches, validate, options(**changes), precision, V)


def never():
    return False


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_equals_torchs_and_so_does_its_gradient(smoothing):
    logits = torch.randn(6, V, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, V, (6,))
    ours, gradient = loss_and_gradient(logits.detach(), targets, smoothing, 2.5)
    theirs = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(ours, theirs.detach())
    (2.5 * theirs).backward()
    torch.testing.assert_close(gradient, logits.grad)


def test_the_loss_is_finite_for_extreme_logits():
    logits = torch.tensor([[1e4, -1e4, 0.0]])
    loss, gradient = loss_and_gradient(logits, torch.tensor([1]), 0.1)
    assert loss.isfinite() and gradient.isfinite().all()


def test_the_loss_of_half_precision_is_computed_in_fp32():
    logits = torch.randn(5, V).bfloat16()
    loss, _ = loss_and_gradient(logits, torch.zeros(5, dtype=torch.int64), 0.1)
    expected = F.cross_entropy(
        logits.float(), torch.zeros(5, dtype=torch.int64), label_smoothing=0.1, reduction="sum"
    )
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("arch", ["lstm", "lstm-attn", "transformer"])
def test_gradients_by_slices_equal_those_at_once(monkeypatch, arch):
    monkeypatch.setattr("nmt_cli.teacher_forcing.LOSS_ROWS", 3)
    kind = architecture(arch)
    tiny = kind.options(**{**kind.sizes["tiny"], "dropout": 0.0})
    model = kind.build(tiny, Vocabulary(V, V, True)).double()
    twin = copy.deepcopy(model)
    batch = collate(make_pairs(6))
    total = backward(model, batch, 0.1, 0.25)
    hidden, targets = target_hidden(twin, batch)
    logits = twin.project(hidden)
    loss = F.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum")
    (0.25 * loss).backward()
    torch.testing.assert_close(total, loss.detach())
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_accumulated_batches_give_the_gradient_of_one_large_batch():
    kind = architecture("lstm-attn")
    tiny = kind.options(**{**kind.sizes["tiny"], "dropout": 0.0})
    pairs = make_pairs(6)
    models = [kind.build(tiny, Vocabulary(V, V, True)).double() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    tokens = sum(len(pair.tgt) - 1 for pair in pairs)
    backward(models[0], collate(pairs), 0.1, 1 / tokens)
    for part in (pairs[:1], pairs[1:4], pairs[4:]):
        backward(models[1], collate(part), 0.1, 1 / tokens)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_schedules():
    inverse = options(lr=1.0, warmup=100)
    assert [learning_rate(s, inverse) for s in (1, 50, 100, 400)] == [0.01, 0.5, 1.0, 0.5]
    constant = options(lr=1.0, warmup=10, schedule="constant")
    assert [learning_rate(s, constant) for s in (5, 10, 999)] == [0.5, 1.0, 1.0]
    cosine = options(lr=1.0, warmup=10, schedule="cosine", last_step=110)
    assert learning_rate(60, cosine) == pytest.approx(0.5)
    assert learning_rate(110, cosine) == pytest.approx(0.0)
    assert learning_rate(1, options(lr=1.0, warmup=0)) == 1.0


def test_events_come_in_order():
    events = list(make_trainer().run(never))
    steps = [event.step for event in events if isinstance(event, Step)]
    assert steps == list(range(1, 13))
    assert [e.step for e in events if isinstance(e, Validated)] == [5, 10, 12]
    assert [e.step for e in events if isinstance(e, SaveDue)] == [5, 10, 12]
    assert isinstance(events[-1], Stopped) and not events[-1].interrupted


@pytest.mark.parametrize(
    ("arch", "average"),
    [("lstm", 3), ("lstm-attn", None), ("transformer", None), ("transformer", 0)],
)
@pytest.mark.parametrize("stop", [1, 5, 7])
def test_a_resumed_run_equals_one_that_never_stopped(arch, average, stop):
    straight = make_trainer(arch=arch, average=average)
    losses = [e.loss for e in straight.run(never) if isinstance(e, Step)]
    first = make_trainer(arch=arch, average=average)
    taken = []
    for event in first.run(lambda: len(taken) >= stop):
        if isinstance(event, Step):
            taken.append(event.loss)
    tensors, values = first.state()
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    torch.manual_seed(12345)
    second = make_trainer(arch=arch, average=average)
    second.restore(tensors, values)
    rest = [e.loss for e in second.run(never) if isinstance(e, Step)]
    assert taken + rest == losses
    for name, tensor in weights_of(straight.model).items():
        assert torch.equal(tensor, weights_of(second.model)[name]), name
    averages = straight.average.state()
    assert averages.keys() == second.average.state().keys()
    for name, tensor in averages.items():
        assert torch.equal(tensor, second.average.state()[name]), name


def copied_weights(model):
    return {name: tensor.clone() for name, tensor in weights_of(model).items()}


def train_and_watch(average):
    """Train 20 steps, validating every 5, each better: what passed, was validated, was kept."""
    seen, taken = [], []
    trainer = make_trainer(average=average, last_step=20)
    trainer._validate = lambda model, _: seen.append(copied_weights(model)) or Score(len(seen), 1.0)
    for event in trainer.run(never):
        if isinstance(event, Step):
            taken.append(copied_weights(trainer.model))
    for name, newest in weights_of(trainer.model).items():
        assert torch.equal(newest, taken[-1][name])
        assert torch.equal(trainer.best_weights[name], seen[-1][name])
    return taken, trainer.best_weights


def test_the_running_average_counts_late_steps_more():
    """Written out, the weights at step i of n count comb(i + r - 1, r) times, with r = 8."""
    taken, kept = train_and_watch(average=None)
    shares = [math.comb(i + 7, 8) for i in range(1, 21)]
    for name, tensor in kept.items():
        pairs = zip(shares, taken, strict=True)
        mean = sum(share * weights[name].double() for share, weights in pairs) / sum(shares)
        torch.testing.assert_close(tensor.double(), mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("average", "steps"), [(1, [20]), (2, [15, 20]), (9, [5, 10, 15, 20])])
def test_the_mean_at_the_last_validations_is_validated_and_kept(average, steps):
    taken, kept = train_and_watch(average)
    for name, tensor in kept.items():
        mean = sum(taken[step - 1][name] for step in steps) / len(steps)
        torch.testing.assert_close(tensor, mean)


def test_without_average_the_weights_themselves_are_kept():
    taken, kept = train_and_watch(average=0)
    assert all(torch.equal(tensor, taken[-1][name]) for name, tensor in kept.items())


def test_patience_counts_validations_without_a_better_one():
    scores = [Score(5, 1), Score(7, 1), Score(7, 1.0), Score(6, 0.5)]
    events = list(make_trainer(scores, patience=2, last_step=100).run(never))
    assert [e.best for e in events if isinstance(e, Validated)] == [True, True, False, False]
    assert events[-1].step == 20
    assert "no improvement in 2 validations" in events[-1].reason


def test_an_equal_bleu_with_a_lower_loss_is_better():
    assert Score(5, 1.0).beats(None)
    assert Score(5, 0.9).beats(Score(5, 1.0))
    assert not Score(4, 0.1).beats(Score(5, 1.0))


def test_a_loss_that_is_not_finite_stops_the_run_with_step_rate_and_advice():
    trainer = make_trainer()
    events = trainer.run(never)
    for _ in range(3):
        next(events)
    with torch.no_grad():
        trainer.model.readout.weight.fill_(math.nan)
    skipped = list(itertools.islice((e for e in events if isinstance(e, Skipped)), MOST_SKIPPED))
    assert [event.step for event in skipped] == [4, 5, 6, 7, 8]
    assert all("pairs (epoch" in event.why for event in skipped)
    with pytest.raises(Diverged, match=r"step 9, learning rate 0\.00.*nan.*a lower --lr"):
        list(events)


def spoilt(trainer, steps, loss):
    """Give the trainer another loss in some calls, counted from 1."""
    gradients, calls = trainer._gradients, itertools.count(1)
    trainer._gradients = lambda *given: (
        (loss, gradients(*given)[1]) if next(calls) in steps else gradients(*given)
    )
    return trainer


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_step_of_no_use_changes_no_weight_and_training_goes_on(loss):
    trainer, before = spoilt(make_trainer(last_step=8, average=0), {3, 4}, loss), {}
    for event in trainer.run(never):
        if isinstance(event, Skipped):
            assert all(torch.equal(w, before[n]) for n, w in enumerate(trainer.model.parameters()))
            assert f"{loss:g}" in event.why and f"{event.step - 2} of at most 5" in event.why
        before = dict(enumerate(w.clone() for w in trainer.model.parameters()))
        assert not isinstance(event, Step) or event.step not in {3, 4}
    assert trainer.progress.step == 8 and trainer.progress.health.seen == 6


def test_a_spike_is_told_from_the_usual_losses_and_left_out():
    health = Health()
    for n in range(300):
        assert health.fault(3 + n % 2, 1.0, guessing=8.0) is None
        health.take(3 + n % 2, guessing=8.0)
    assert health.mean == pytest.approx(3.5, abs=0.02)
    assert health.fault(6.9, 1.0, guessing=8.0) is None  # below twice the usual
    assert "norm inf" in health.fault(3.0, math.inf, guessing=8.0)
    for _ in range(MOST_SKIPPED):
        fault = health.fault(8.0, 1.0, guessing=8.0)
        assert "far above the usual 3.5" in fault
        health.leave_out(fault)
    assert health.fault(8.0, 1.0, guessing=8.0) is None  # a new level, then
    with pytest.raises(Diverged, match=r"nan.*, after 5 steps in a row"):
        health.leave_out(health.fault(math.nan, 1.0, guessing=8.0))


def test_no_spike_is_told_before_the_usual_is_known_nor_of_a_loss_near_0():
    health = Health()
    for _ in range(100):
        health.take(0.01, guessing=8.0)
    assert health.fault(50.0, 1.0, guessing=8.0) is None
    for _ in range(200):
        health.take(0.01, guessing=8.0)
    assert health.fault(0.5, 1.0, guessing=8.0) is None


def test_a_save_that_falls_on_a_skipped_step_comes_after_it():
    trainer = spoilt(make_trainer(last_step=10, save_every=5, average=0), {5, 6}, math.nan)
    assert [e.step for e in trainer.run(never) if isinstance(e, SaveDue)] == [7, 10]


def test_the_last_step_may_be_a_skipped_one():
    trainer = spoilt(make_trainer(last_step=6, save_every=5, average=0), {6}, math.nan)
    events = list(trainer.run(never))
    assert [e.step for e in events if isinstance(e, SaveDue)] == [5, 6]
    assert next(e.best for e in events if isinstance(e, Validated))


def test_rolling_back_takes_the_state_but_neither_its_rate_nor_its_place_in_the_data():
    trainer = make_trainer(last_step=30, average=0, schedule="constant", warmup=0, lr=0.01)
    events = trainer.run(never)
    for _ in range(4):
        next(events)
    tensors, values = trainer.state()
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    values = json.loads(json.dumps(values))
    for _ in range(3):
        next(events)
    position = trainer.progress.position
    assert position != Position(*values["position"])
    trainer.roll_back(tensors, values)
    assert (trainer.progress.step, trainer.progress.position) == (4, position)
    for name, weights in trainer.model.named_parameters():
        assert torch.equal(weights, tensors[f"model.{name}"])
    step = next(trainer.run(never))
    assert (step.step, step.lr) == (5, 0.005)


def test_an_absurd_loss_for_twenty_steps_is_divergence():
    trainer = make_trainer(last_step=100, lr=1e-9, warmup=0)
    with torch.no_grad():
        trainer.model.projection.bias[5:].add_(1e4)
    with pytest.raises(WorkFailed, match="diverged at step 20"):
        list(trainer.run(never))


def test_a_model_whose_loss_has_gone_wrong_is_never_the_best():
    trainer = make_trainer([Score(1, 1)], last_step=100, lr=1e-9, warmup=0, validate_every=10)
    events = trainer.run(never)
    with torch.no_grad():
        trainer.model.projection.bias[5:].add_(1e4)
    validated = [next(event for event in events if isinstance(event, Validated))]
    assert [event.best for event in validated] == [False]
    assert trainer.best_weights == {}


def test_clip_norm_of_zero_clips_nothing():
    def weights(clip_norm):
        trainer = make_trainer(clip_norm=clip_norm)
        list(trainer.run(never))
        return copied_weights(trainer.model)

    free, wide, tight = weights(0), weights(1e9), weights(1e-3)
    assert all(torch.equal(free[name], wide[name]) for name in free)
    assert not all(torch.equal(free[name], tight[name]) for name in free)


def test_training_in_bf16_learns_as_in_fp32():
    losses = {}
    for name in ("fp32", "bf16"):
        trainer = make_trainer(precision=Precision(name, ""), last_step=60, validate_every=100)
        losses[name] = [e.loss for e in trainer.run(never) if isinstance(e, Step)]
    assert losses["bf16"] != losses["fp32"]
    assert losses["bf16"][-1] == pytest.approx(losses["fp32"][-1], rel=0.1)
    assert losses["bf16"][-1] < 0.8 * losses["bf16"][0]


def test_the_rule_of_precision():
    cpu = torch.device("cpu")
    expected = "bf16" if cpu_has_bf16() else "fp32"
    assert choose_training_precision("auto", cpu, bf16_pays_on_cpu=True).name == expected
    assert choose_training_precision("auto", cpu, bf16_pays_on_cpu=False).name == "fp32"
    refused = choose_training_precision("fp16", cpu, bf16_pays_on_cpu=True)
    assert refused.name == "fp32" and "fp16" in refused.warning
    assert choose_translation_precision("auto", cpu).name == "fp32"
    assert choose_device("auto").type in {"cpu", "cuda", "mps"}


def fp16_trainer(**changes):
    trainer = make_trainer(precision=Precision("fp16", ""), **changes)
    assert trainer.scaler.is_enabled()
    return trainer


def test_a_step_that_overflows_fp16_is_left_out_and_said():
    trainer = fp16_trainer(last_step=3, average=0)
    before = copied_weights(trainer.model)
    trainer.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)  # no gradient is finite
    first = next(e for e in trainer.run(never) if isinstance(e, Step | Skipped))
    assert isinstance(first, Skipped) and "fp16 overflowed" in first.why
    assert trainer.scaler.get_scale() < 2.0**40 and trainer.progress.health.skipped == 0
    for name, tensor in copied_weights(trainer.model).items():
        assert torch.equal(tensor, before[name])


def test_a_spike_is_left_out_in_fp16_too(monkeypatch):
    trainer = fp16_trainer(last_step=2, average=0)
    monkeypatch.setattr(trainer.progress.health, "fault", lambda *_: "a spike")
    events = [e for e in trainer.run(never) if isinstance(e, Step | Skipped)]
    assert [type(event) for event in events] == [Skipped, Skipped]
    assert "a spike" in events[0].why


def test_fp32_on_cuda_may_be_told_to_be_exact(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    cuda, before = torch.device("cuda"), torch.get_float32_matmul_precision()
    try:
        use_fast_kernels(cuda)
        assert torch.get_float32_matmul_precision() == "high"
        use_exact_kernels(cuda)
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.backends.cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision(before)


def test_fp16_trains_as_fp32_does():
    losses = []
    for precision in (FP32, Precision("fp16", "")):
        trainer = make_trainer(precision=precision, last_step=8, average=0, clip_norm=0.0)
        losses.append([e.loss for e in trainer.run(never) if isinstance(e, Step)])
    assert losses[1] == pytest.approx(losses[0], rel=2e-2)
