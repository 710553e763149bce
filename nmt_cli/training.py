"""The training loop: a generator of events that knows nothing of files or terminals.

Teacher forcing with label-smoothed cross-entropy (Szegedy et al. 2016), AdamW (Loshchilov &
Hutter 2019), warm-up, clipping by the global norm, and an average of the weights as what is
validated and kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt_cli.averaging import Weights, make_average
from nmt_cli.batches import Batch, Position, TrainingBatches
from nmt_cli.checking import MANY, misfit
from nmt_cli.compiling import compiled
from nmt_cli.divergence import MOST_ROLLBACKS, MOST_SKIPPED, Diverged, Health
from nmt_cli.errors import is_out_of_memory
from nmt_cli.events import Event, SaveDue, Score, Skipped, Step, Stopped, Validated, Warned
from nmt_cli.models.base import Seq2Seq
from nmt_cli.precision import Precision, give_back_memory
from nmt_cli.schedule import TrainingOptions, learning_rate
from nmt_cli.teacher_forcing import backward, teacher_forced

_SMALLEST_SCALE = 1.0


@dataclass
class Progress:
    """Where training stands: what must be kept, beside weights and optimizer, to go on."""

    step: int = 0
    position: Position = field(default_factory=lambda: Position(0, 0))
    best: Score | None = None
    stale: int = 0
    """Validations since the best."""
    health: Health = field(default_factory=Health)
    rollbacks: int = 0
    parts: int = 1
    """In which a batch is read, as there is no memory for it at once."""
    seconds: float = 0.0

    def require_possible(self) -> None:
        """Refuse values that no training can come to.

        Raises:
            ValueError: naming one.
        """
        best = self.best._asdict() if self.best else {}
        for declared, values in (
            (Progress, vars(self)),
            (Health, vars(self.health)),
            (Position, self.position._asdict()),
            (Score, best),
        ):
            if wrong := misfit(declared, values):
                raise ValueError(f"{wrong} is {values[wrong]!r}")
            for name, value in values.items():
                most = MOST_ROLLBACKS if name == "rollbacks" else MANY
                least = 1 if name == "parts" else 0
                if isinstance(value, int) and value > most:
                    raise ValueError(f"{name} is {value!r}")
                if isinstance(value, int | float) and value < least:
                    raise ValueError(f"{name} is {value!r}")

    @property
    def lr_factor(self) -> float:
        """What rates are multiplied by: half for every rollback."""
        return 0.5**self.rollbacks


class _Outcome(NamedTuple):
    """What became of a step."""

    loss: float
    tokens: int
    fault: str | None
    """Why it was not taken."""


class _Ahead:
    """Draws the batches of a step, and moves them to the device, while another is at work there."""

    def __init__(
        self, stream: Iterator[tuple[Position, Batch]], count: int, device: torch.device
    ) -> None:
        self._stream, self._count, self._device = stream, count, device
        self._next: tuple[Position, list[Batch]] | None = None

    def look(self) -> None:
        """Draw those of the next step, if they are not there yet."""
        if self._next is None:
            drawn = [next(self._stream) for _ in range(self._count)]
            self._next = drawn[-1][0], [batch.to(self._device) for _, batch in drawn]

    def take(self) -> tuple[Position, list[Batch]]:
        """Give the next step's batches, and the position after them."""
        self.look()
        taken, self._next = self._next, None
        assert taken is not None
        return taken


class Trainer:
    """Trains one model; ``run`` yields events, and state can be taken and put back between them."""

    def __init__(
        self,
        model: Seq2Seq,
        batches: TrainingBatches,
        validate: Callable[[Seq2Seq, Precision], Score],
        options: TrainingOptions,
        precision: Precision,
        tgt_vocab: int,
        compile: bool = False,
    ) -> None:
        self.model = model
        self.options = options
        self.precision = precision
        self.progress = Progress()
        self._warnings: list[str] = []
        self._place = ""
        self._forward = compiled(teacher_forced) if compile else teacher_forced
        self._batches = batches
        self._validate = validate
        self._device = next(model.parameters()).device
        self._guessing = math.log(tgt_vocab)
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=options.lr,
            betas=options.betas,
            weight_decay=options.weight_decay,
            fused=self._device.type in {"cpu", "cuda"},
        )
        self.scaler = torch.amp.GradScaler(
            self._device.type, enabled=precision.name == "fp16", init_scale=2.0**14
        )
        self.average = make_average(options.average, weights_of(model))
        self.best_weights: Weights = {}
        """What the last ``Validated`` with ``best`` was about; copied nowhere else."""

    def run(
        self, interrupted: Callable[[], bool], save_asked: Callable[[], bool] = lambda: False
    ) -> Iterator[Event]:
        """Train until the end that the options set.

        Args:
            interrupted: asked after each step whether to save and stop at once.
            save_asked: asked after each step whether to save and go on.

        Raises:
            Diverged: when the loss stays of no use.
        """
        options, progress = self.options, self.progress
        self.model.train()
        stream = self._batches.start_from(progress.position)
        coming = _Ahead(stream, options.accumulate, self._device)
        started = time.perf_counter() - progress.seconds
        if options.on_divergence == "rollback" and progress.step == 0 and progress.rollbacks == 0:
            yield SaveDue(0)
        due, saved = False, -1
        while not (reason := self.reason_to_stop(interrupted)):
            began = time.perf_counter()
            position, batches = coming.take()
            self._set_rate()
            self._place = (
                f"epoch {progress.position.epoch}, after its batch {progress.position.batch}"
            )
            progress.position = position
            outcome = self._step(batches, coming.look)
            progress.step += 1
            yield from map(Warned, self._warnings)
            self._warnings = []
            epoch = progress.position.epoch
            if outcome.fault:
                yield Skipped(progress.step, epoch, self._rate, outcome.fault)
            else:
                speed = outcome.tokens / (time.perf_counter() - began)
                yield Step(progress.step, epoch, outcome.loss, self._rate, speed)
            if progress.step % options.validate_every == 0:
                yield self._validation()
            progress.seconds = time.perf_counter() - started
            due = save_asked() or due or progress.step % options.save_every == 0
            if due and progress.health.skipped == 0 and self._is_sound():
                yield SaveDue(progress.step)
                due, saved = False, progress.step
        if saved != progress.step and self._is_sound():
            yield SaveDue(progress.step)
        if not interrupted() and (
            progress.step % options.validate_every != 0 or progress.best is None
        ):
            yield self._validation()
        yield Stopped(progress.step, reason, interrupted())

    def reason_to_stop(self, interrupted: Callable[[], bool]) -> str | None:
        """Say why training is over, or None while it is not."""
        options, progress = self.options, self.progress
        if interrupted():
            return "interrupted"
        if options.last_step is not None and progress.step >= options.last_step:
            past = f", and the run stands at {progress.step}"
            past = past if progress.step > options.last_step else ""
            return f"the last step ({options.last_step}) is reached{past}"
        if options.minutes is not None and progress.seconds >= 60 * options.minutes:
            return f"{options.minutes:g} minutes are over"
        if options.patience and progress.stale >= options.patience:
            return f"no improvement in {progress.stale} validations"
        return None

    def _is_sound(self) -> bool:
        """Tell whether the weights may replace those of an earlier state."""
        return self.progress.health.sound and all(
            bool(weights.isfinite().all()) for weights in self.model.parameters()
        )

    def _set_rate(self) -> None:
        rate = learning_rate(self.progress.step + 1, self.options)
        self._rate = rate * self.progress.lr_factor
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate

    def _step(self, batches: list[Batch], meanwhile: Callable[[], None]) -> _Outcome:
        """Take one optimizer step over the batches, or leave it out.

        Args:
            batches: on the device of the model.
            meanwhile: called when a GPU has its work and has yet to be waited for.
        """
        tokens = sum(len(batch.predicted) for batch in batches)
        loss, norm = self._gradients(batches, tokens, meanwhile)
        if self.scaler.is_enabled() and not math.isfinite(norm):
            loss, fault = self._overflowed(loss, batches, tokens)
        else:
            fault = self._judged(loss, norm, batches)
            if fault is None:
                self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if fault is None:
            self.average.after_step(self.progress.step + 1, weights_of(self.model))
        return _Outcome(loss, tokens, fault)

    def _gradients(
        self, batches: list[Batch], tokens: int, meanwhile: Callable[[], None] = lambda: None
    ) -> tuple[float, float]:
        """Form the clipped gradients: the loss per token, and their norm before.

        Where memory does not suffice for a batch, this and all that follow are taken in parts.
        """
        progress, largest = self.progress, max(len(batch.src) for batch in batches)
        while True:
            try:
                total, norm = self._accumulated(batches, tokens)
                meanwhile()
                loss, before = torch.stack([total, norm]).tolist()  # a GPU is waited for, once
                return loss / tokens, before
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or progress.parts >= largest:
                    raise
            self._forget_gradients()
            give_back_memory(self._device)
            progress.parts *= 2
            self._warnings.append(
                f"out of memory at step {progress.step + 1}: from here on each batch is read in "
                f"{progress.parts} parts, whose gradients add up to the same; a smaller "
                "--batch-tokens with --accumulate saves the attempt"
            )

    def _accumulated(self, batches: list[Batch], tokens: int) -> tuple[Tensor, Tensor]:
        """Add up the gradients, and clip them: the loss of all tokens, and their norm before."""
        parts = self.progress.parts
        if parts > 1:
            batches = [part for batch in batches for part in batch.in_parts(parts)]
        total = torch.zeros((), device=self._device)
        scale = self.scaler.scale(torch.ones((), device=self._device)) / tokens
        with self.precision.autocast(self._device):
            for batch in batches:
                total += backward(
                    self.model, batch, self.options.label_smoothing, scale, self._forward
                )
        self.scaler.unscale_(self.optimizer)
        most = self.options.clip_norm or math.inf
        return total, torch.nn.utils.clip_grad_norm_(self.model.parameters(), most).float()

    def _judged(self, loss: float, norm: float, batches: list[Batch]) -> str | None:
        """Count a step, and say why it must not be taken, or None.

        Raises:
            Diverged: if training should not go on.
        """
        health = self.progress.health
        fault = health.fault(loss, norm, self._guessing)
        if fault is None:
            self._count(loss)
            return None
        try:
            health.leave_out(fault)
        except Diverged as error:
            raise self._diverged(error) from None
        pairs = sum(len(batch.src) for batch in batches)
        return (
            f"{fault}, at learning rate {self._rate:.3g}, in a batch of {pairs} pairs "
            f"({self._place}): left out, {health.skipped} of at most {MOST_SKIPPED} in a row"
        )

    def _count(self, loss: float) -> None:
        try:
            self.progress.health.take(loss, self._guessing)
        except Diverged as error:
            raise self._diverged(error) from None

    def _diverged(self, error: Diverged) -> Diverged:
        return Diverged(
            f"training diverged at step {self.progress.step + 1}, learning rate {self._rate:.3g}: "
            f"{error}; nothing was saved since the loss went wrong. Train anew (--overwrite) with "
            "a lower --lr (a tenth), a longer --warmup or a lower --clip-norm"
            + (", or --precision fp32" if self.precision.name != "fp32" else "")
        )

    def _overflowed(
        self, loss: float, batches: list[Batch], tokens: int
    ) -> tuple[float, str | None]:
        """Leave a step of fp16 out and lower the scale: the loss, and why there is no step."""
        self.scaler.step(self.optimizer)  # sees it and does nothing
        self.scaler.update()
        if self.scaler.get_scale() < _SMALLEST_SCALE:
            return self._leave_fp16(batches, tokens)
        return loss, "fp16 overflowed: left out, and the scale of the loss is lowered"

    def _leave_fp16(self, batches: list[Batch], tokens: int) -> tuple[float, str | None]:
        """Go on in fp32 when fp16 overflows at any scale: the loss there and its fault, if any."""
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler = torch.amp.GradScaler(self._device.type, enabled=False)
        self.precision = Precision("fp32", "fp16 overflowed")
        loss, norm = self._gradients(batches, tokens)
        fault = self._judged(loss, norm, batches)
        if fault is None:
            self.optimizer.step()
        self._warnings.append(
            f"fp16 overflows again and again at step {self.progress.step + 1}: going on in fp32"
        )
        return loss, fault

    def _validation(self) -> Validated:
        progress, began = self.progress, time.perf_counter()
        current = _copy_of(self.model)
        _put(self.average.at_validation(current), self.model)
        self.model.eval()
        score = self._validate(self.model, self.precision)
        self.model.train()
        health = progress.health
        sound = health.sound and not health.absurd(score.loss, self._guessing)
        best = sound and score.beats(progress.best)
        progress.stale = 0 if best else progress.stale + 1
        if best:
            progress.best = score
            self.best_weights = _copy_of(self.model)
        _put(current, self.model)
        seconds = time.perf_counter() - began
        return Validated(progress.step, progress.position.epoch, score, best, seconds)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Give all that a resumed run needs, as named tensors and JSON values."""
        progress = self.progress
        tensors = {f"model.{name}": tensor for name, tensor in weights_of(self.model).items()}
        for index, entry in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{key}": value for key, value in entry.items()}
        tensors |= {f"average.{name}": tensor for name, tensor in self.average.state().items()}
        tensors["rng.cpu"] = torch.get_rng_state()
        if self._device.type == "cuda":
            tensors["rng.cuda"] = torch.cuda.get_rng_state(self._device)
        values = {
            "step": progress.step,
            "position": list(progress.position),
            "best": list(progress.best) if progress.best else None,
            "stale": progress.stale,
            "health": asdict(progress.health),
            "rollbacks": progress.rollbacks,
            "parts": progress.parts,
            "seconds": progress.seconds,
            "precision": self.precision.name,
            "scaler": self.scaler.state_dict(),
        }
        return tensors, values

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Put back what ``state`` gave.

        Raises:
            ValueError: if it is not that; other errors, such as KeyError, too.
        """
        progress = Progress(
            step=values["step"],
            position=Position(*values["position"]),
            best=Score(*values["best"]) if values["best"] else None,
            stale=values["stale"],
            health=Health(**values["health"]),
            rollbacks=values["rollbacks"],
            parts=values["parts"],
            seconds=values["seconds"],
        )
        progress.require_possible()
        groups: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            groups.setdefault(kind, {})[rest] = tensor
        _put(groups["model"], self.model)
        optimizer: dict[int, dict[str, Tensor]] = {}
        for name, tensor in groups.get("optimizer", {}).items():
            index, _, key = name.partition(".")
            optimizer.setdefault(int(index), {})[key] = tensor
        template = self.optimizer.state_dict()
        self.optimizer.load_state_dict({**template, "state": optimizer})
        self.average.restore(groups.get("average", {}))
        torch.set_rng_state(groups["rng"]["cpu"])
        if "cuda" in groups["rng"] and self._device.type == "cuda":
            torch.cuda.set_rng_state(groups["rng"]["cuda"], self._device)
        if values["precision"] == "fp32" and self.precision.name == "fp16":
            self.precision = Precision("fp32", "as before it was resumed")
            self.scaler = torch.amp.GradScaler(self._device.type, enabled=False)
        if values["scaler"]:
            self.scaler.load_state_dict(values["scaler"])
        self.progress = progress

    def _forget_gradients(self) -> None:
        """Begin a step anew; the scaler, too, must not think that it has seen these gradients."""
        self.optimizer.zero_grad(set_to_none=True)
        if self.scaler.is_enabled():
            before = self.scaler.state_dict()
            self.scaler = torch.amp.GradScaler(self._device.type)
            self.scaler.load_state_dict(before)

    def roll_back(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Go back to a state, but not to its place in the data, and halve the rate."""
        now = self.progress
        self._forget_gradients()
        self.restore(tensors, values)
        self.progress.position, self.progress.seconds = now.position, now.seconds
        self.progress.rollbacks = now.rollbacks + 1


def weights_of(model: Seq2Seq) -> Weights:
    """Name the parameters, a shared one once; the tensors are the model's own."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _copy_of(model: Seq2Seq) -> Weights:
    return {name: tensor.clone() for name, tensor in weights_of(model).items()}


def _put(weights: Weights, model: Seq2Seq) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
