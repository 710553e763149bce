"""One training run from a config to an evaluated run folder, as a generator of events."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nmt_cli import __version__, metrics
from nmt_cli.config import Config, resolve_training
from nmt_cli.divergence import MOST_ROLLBACKS, Diverged
from nmt_cli.errors import NmtError, WorkFailed
from nmt_cli.evaluation import Report, evaluate, make_sample, translate_sample
from nmt_cli.events import Event, RolledBack, SaveDue, Skipped, Step, Stopped, Validated
from nmt_cli.models import Seq2Seq, architecture, parameter_count
from nmt_cli.models.options import parse
from nmt_cli.precision import (
    choose_device,
    choose_training_precision,
    choose_translation_precision,
    use_fast_kernels,
)
from nmt_cli.preparation import Preparation
from nmt_cli.runs import RunFolder
from nmt_cli.search import SearchOptions
from nmt_cli.training import Trainer
from nmt_cli.translation import load_translator
from nmt_cli.validation import Sampled, Validation
from nmt_cli.watching import Note, Watcher
from nmt_cli.workers import choose_workers


class Prepared(NamedTuple):
    """All is ready for the first step."""

    last_step: int | None
    per_epoch: int
    step: int


_EASILY_TYPED = 60
"""Characters of a sentence that is proposed to be tried."""


class Evaluated(NamedTuple):
    """The best weights were judged on the test split."""

    report: Report
    example: str | None
    """A short source out of it, if it has one that is typed easily."""


RunEvent = Event | Note | Prepared | Sampled | Evaluated


def start(
    config: Config, folder: RunFolder, overwrite: bool, watcher: Watcher
) -> Iterator[RunEvent]:
    """Train a new run.

    Args:
        config: what to do.
        folder: where to; made once the data has proved usable.
        overwrite: whether a run that is there is replaced, once the new one has weights.
        watcher: asked whether to stop, told how the final translation comes on.

    Raises:
        NmtError: for bad input, or a folder that holds a run already.
        WorkFailed: if training diverges or the disk is full.
    """
    folder.require_place()
    folder.settle()
    _replaces(folder, overwrite)
    resolve_training(config, per_epoch=1)  # refuses what cannot go together, before the data
    session = _Session(config, folder, watcher)
    yield from session.read_data()
    yield from session.data.learn_tokenizers()
    yield from session.build()
    if config.init is not None:
        parent = RunFolder(Path(config.init))
        yield from _start_from(parent, config, session.model)
        session.learnt_before = parent.fingerprints()
    with folder.held():
        if _replaces(folder, overwrite):  # another may have come and gone since
            folder.write_beside()
        try:
            session.write_folder()
            yield from session.train()
        finally:
            folder.discard_beside()


def _replaces(folder: RunFolder, overwrite: bool) -> bool:
    """Tell whether there is a run to replace, and refuse to unless that was asked for."""
    if not folder.exists():
        return False
    if not overwrite:
        go_on = f"go on with it by `nmt train --resume {folder.path}`, "
        raise NmtError(
            f"{folder.path}: holds a run already; {go_on if folder.can_be_resumed() else ''}"
            "replace it with --overwrite, or choose another folder with -o"
        )
    return True


def _start_from(parent: RunFolder, config: Config, model: Seq2Seq) -> Iterator[Note]:
    """Take the weights of ``--init``; options that change their shapes are to blame, not they."""
    before = parent.config()["options"]
    changed = [
        f"-O {name}={value}"
        for name, value in config.options.items()
        if before.get(name) != value and name != "dropout"
    ]
    try:
        parent.load_weights(model)
    except NmtError as error:
        if not changed:
            raise
        raise NmtError(
            f"{' '.join(changed)}: not the options of {parent.path}, whose weights --init starts "
            f"from ({error})"
        ) from None
    if changed:
        yield Note(f"warning: {' '.join(changed)}: the weights of {parent.path} learnt another")


def resume(
    folder: RunFolder, changes: dict[str, Any], cache: Path | None, watcher: Watcher
) -> Iterator[RunEvent]:
    """Go on with a run, bit for bit as if it had never stopped.

    Args:
        folder: the run.
        changes: fields of ``Config`` given anew: the end, the device, the threads.
        cache: the folder of ids on disk. Where files are written is for the command to say, not
            for a run that may be a stranger's.
        watcher: asked whether to stop, told how the final translation comes on.

    Raises:
        NmtError: if there is nothing to go on from, or the data has changed.
    """
    config = _stored_config(folder)
    if not folder.can_be_resumed():
        if left := sorted(folder.path.glob("last/step-*/state.json")):
            raise NmtError(
                f"{folder.path / 'last' / 'LATEST'}: is lost; write the name of the state that is "
                f"there into it: {left[-1].parent.name}"
            )
        raise NmtError(
            f"{folder.path}: has no resumable state (last/LATEST); train it anew, with --overwrite"
        )
    if config.data.cache is not None and cache is None:
        yield Note(f"--cache {config.data.cache} was given before; give it again to use it")
    data = dataclasses.replace(config.data, cache=str(cache) if cache else None)
    config = dataclasses.replace(config, data=data, **changes)
    with folder.held():
        yield from _resume(folder, config, watcher)


def _resume(folder: RunFolder, config: Config, watcher: Watcher) -> Iterator[RunEvent]:
    session = _Session(config, folder, watcher)
    yield from session.read_data()
    session.data.load_tokenizers(folder)
    if session.data.data_hash() != folder.config()["data_hash"]:
        raise NmtError(
            f"{config.data.spec}: the data has changed since {folder.path} was begun, "
            "so it cannot go on as if it had never stopped; train anew with -o"
        )
    yield from session.build()
    if folder.config()["vocab"] != session.vocab._asdict():
        raise NmtError(f"{folder.path / 'config.json'}: damaged: vocab is not the tokenizer's")
    yield from session.restore()
    yield from session.train()


def _stored_config(folder: RunFolder) -> Config:
    """Read what a run was asked to do, and compare it with what it says that it is."""
    path, stored = folder.path / "config.json", folder.config()
    config = Config.from_json(stored["request"], str(path))
    for name in ("arch", "options", "tokenizer"):
        if stored[name] != stored["request"][name]:
            raise NmtError(
                f"{path}: damaged: its {name} is not that of its request, so what is trained would "
                "not be what is tested; put the run's own config.json back"
            )
    return config


class _Session:
    """The steps from config to evaluation; each is called once, in the order of its place."""

    def __init__(self, config: Config, folder: RunFolder, watcher: Watcher) -> None:
        self.config = config
        self.watcher = watcher
        self.data = Preparation(config, watcher)
        self.folder = folder
        self.arch = architecture(config.arch)
        self.device = choose_device(config.device)
        self.precision = choose_training_precision(
            config.precision, self.device, self.arch.bf16_on_cpu
        )
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        use_fast_kernels(self.device)
        self.log_size = 0
        self.learnt_before = np.array([], np.int64)
        """Fingerprints of what the parent learnt from, and so this run, too."""

    def read_data(self) -> Iterator[RunEvent]:
        if self.precision.warning:
            yield Note(f"warning: {self.precision.warning}")
        yield Note(
            f"device: {self.device}, precision: {self.precision.name} "
            f"({self.precision.reason}), threads: {torch.get_num_threads()}"
            + (", compiled" if self.config.compile else "")
        )
        yield from self.data.read()

    def build(self) -> Iterator[RunEvent]:
        """Make ids, batches, model and trainer; everything random follows from the seed."""
        config = self.config
        torch.manual_seed(config.seed)
        self.vocab = self.data.vocabulary()
        options: Any = parse(self.arch.options, config.options, config.arch)
        self.model = self.arch.build(options, self.vocab).to(self.device)
        batches = yield from self.data.batches(self.model.max_positions)
        self.per_epoch = math.ceil(batches.per_epoch / config.training.get("accumulate", 1))
        self.options = resolve_training(config, self.per_epoch)
        self.validation = Validation(
            self.data.valid_pairs(self.model.max_positions),
            self.data.tokenizers,
            self._bleu(),
            self.watcher.wants_attention,
        )
        left_out = len(self.data.splits.valid.pairs) - len(self.validation)
        longest = f"more than {self.data.most_tokens(self.model.max_positions)} tokens a side"
        if not len(self.validation):
            raise NmtError(f"{self.data.splits.valid.name}: every pair has {longest}; give others")
        if left_out:
            yield Note(f"valid: {left_out} pairs with {longest} are left out")
        self.trainer = Trainer(
            self.model, batches, self.validation, self.options, self.precision, self.vocab.tgt,
            compile=self.config.compile,
        )  # fmt: skip

    def _bleu(self) -> metrics.Bleu:
        name, _ = metrics.bleu_tokenizer(self.data.splits.train.tgt_lang)
        return metrics.Bleu(name, self.config.tokenizer.lowercase)

    def write_folder(self) -> None:
        config, train = self.config, self.data.splits.train
        self.folder.write_config(
            {
                "nmt": __version__,
                "id": self._mark(),
                "arch": config.arch,
                "options": config.options,
                "parameters": parameter_count(self.model),
                "vocab": self.vocab._asdict(),
                "tokenizer": dataclasses.asdict(config.tokenizer),
                "src_lang": train.src_lang,
                "tgt_lang": train.tgt_lang,
                "training_pairs": len(train.pairs),
                "data_hash": self.data.data_hash(),
                "test_hash": self.data.test_hash(),
                "training": dataclasses.asdict(self.options),
                "device": str(self.device),
                "precision": self.precision.name,
                "versions": {
                    "python": platform.python_version(),
                    "torch": torch.__version__,
                },
                "created": _now(),
                "finished": None,
                "step": 0,
                "best": None,
                "request": config.as_json(),
            }
        )
        self.folder.write_tokenizers(*self.data.tokenizers)
        self.folder.write_fingerprints(np.union1d(self.data.known, self.learnt_before))

    def _mark(self) -> str:
        """Give what tells this run from others: a hash of all that decides its weights.

        The data counts by what it holds; the end and the device may be given anew.
        """
        asked = {**self.config.as_json(), "training": dataclasses.asdict(self.options)}
        for name in ("data", "end", "device", "threads"):
            del asked[name]
        for name in ("last_step", "minutes"):
            del asked["training"][name]
        text = json.dumps([asked, self.data.data_hash()], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def restore(self) -> Iterator[RunEvent]:
        tensors, values = self.folder.states.load()
        try:
            self.trainer.restore(tensors, values["trainer"])
            self.log_size = int(values["log_size"])
            if self.log_size < 0:
                raise ValueError("log_size is negative")
        except (KeyError, TypeError, ValueError, IndexError, OverflowError, RuntimeError) as error:
            raise NmtError(
                f"{self.folder.path / 'last'}: its state is damaged, of another run or of another "
                f"version of nmt ({type(error).__name__}: {error}); train anew with -o, or start "
                "from its weights by --init"
            ) from None
        reason = self.trainer.reason_to_stop(lambda: False)
        if reason is not None and self.folder.config().get("finished"):
            more = "give more --steps, --epochs or --minutes"
            if 0 < self.options.patience <= self.trainer.progress.stale:
                more = f"begin another run from its weights, by --init {self.folder.path}"
            raise NmtError(
                f"{self.folder.path}: has finished ({reason}); to train it further, {more}"
            )
        self.folder.states.put_best_back()
        yield Note(f"going on after step {self.trainer.progress.step}")
        before = self.folder.config()["training"].get("last_step")
        if self.options.schedule == "cosine" and self.options.last_step != before:
            yield Note(f"the cosine schedule is planned anew, to end at {self.options.last_step}")
        if self.folder.truncate_log(self.log_size):
            yield Note(f"warning: {self.folder.log_path}: has lost lines since the state was saved")
        self.folder.update_config(
            finished=None,
            training=dataclasses.asdict(self.options),
            request=self.config.as_json(),
        )

    def train(self) -> Iterator[RunEvent]:
        steps = "1 step" if self.per_epoch == 1 else f"{self.per_epoch} steps"
        yield Note(
            f"{self.config.arch}: {parameter_count(self.model):,} parameters; an epoch is {steps}; "
            f"run folder {self.folder.path}"
        )
        yield Prepared(self.options.last_step, self.per_epoch, self.trainer.progress.step)
        for event in self._run():
            self._keep(event)
            yield event
            if isinstance(event, Validated):
                yield from self.validation.samples
            if isinstance(event, Stopped) and event.interrupted:
                yield self._how_to_go_on(event.step)
                return
        yield from self._finish()

    def _run(self) -> Iterator[Event]:
        """Run the trainer, and roll it back where it diverges, if that is wished."""
        while True:
            try:
                yield from self.trainer.run(self.watcher.interrupted, self.watcher.save_asked)
                return
            except Diverged as error:
                progress, steps = self.trainer.progress, self.trainer.progress.step
                if self.options.on_divergence == "stop":
                    raise Diverged(f"{error}{self._what_remains()}") from None
                if progress.rollbacks >= MOST_ROLLBACKS:
                    after = f" (after {MOST_ROLLBACKS} rollbacks)"
                    raise Diverged(f"{error}{after}{self._what_remains()}") from None
                tensors, values = self.folder.states.load()
                self.trainer.roll_back(tensors, values["trainer"])
                self.folder.states.put_best_back()
                now = self.trainer.progress
                yield RolledBack(now.step, steps + 1, str(error), now.lr_factor)

    def _what_remains(self) -> str:
        """Name the weights that can still be used."""
        best = self.trainer.progress.best
        if best is None:
            return ""
        return f". {self.folder.path} keeps its best weights (validation BLEU {best.bleu:.1f})"

    def _how_to_go_on(self, step: int) -> Note:
        if self.folder.is_beside():
            return Note(
                f"stopped at step {step}, before the new run had weights to translate with: it is "
                f"dropped, and the old one in {self.folder.path} stands"
            )
        return Note(f"stopped at step {step}; go on by `nmt train --resume {self.folder.path}`")

    def _keep(self, event: Event) -> None:
        """Write to disk what an event is about."""
        if isinstance(event, Step):
            self.log_size = self.folder.append_log({**event._asdict(), "time": time.time()})
        elif isinstance(event, Skipped | RolledBack):
            kind = "skipped" if isinstance(event, Skipped) else "rolled_back"
            self.log_size = self.folder.append_log(
                {**event._asdict(), kind: True, "time": time.time()}
            )
        elif isinstance(event, Validated):
            if event.best:
                self.folder.write_weights(self.trainer.best_weights)
                self.folder.forget_evaluation()
            self.log_size = self.folder.append_log(
                {
                    "step": event.step,
                    "epoch": event.epoch,
                    "valid_bleu": event.score.bleu,
                    "valid_loss": event.score.loss,
                    "best": event.best,
                    "samples": [
                        {
                            "source": sample.source,
                            "reference": sample.reference,
                            "translation": sample.translation,
                        }
                        for sample in self.validation.samples
                    ],
                    "seconds": event.seconds,
                    "time": time.time(),
                }
            )
        elif isinstance(event, SaveDue):
            tensors, values = self.trainer.state()
            self.folder.states.save(
                event.step, tensors, {"trainer": values, "log_size": self.log_size}
            )
            self._take_place()
        elif isinstance(event, Stopped):
            self._take_place()
            best = self.trainer.progress.best
            self.folder.update_config(
                step=event.step,
                stopped=event.reason,
                seconds=self.trainer.progress.seconds,
                best={"valid_bleu": best.bleu, "valid_loss": best.loss} if best else None,
            )

    def _take_place(self) -> None:
        """Replace the run that was here, if there was one, by this one that can translate."""
        if self.trainer.progress.best:
            self.folder.take_place()

    def _finish(self) -> Iterator[RunEvent]:
        """Judge the best weights on the test split.

        Raises:
            WorkFailed: if there are none.
        """
        if not self.trainer.progress.best:
            raise WorkFailed(
                f"{self.folder.path}: the loss of every validation was nan, inf or absurdly high, "
                "so there are no weights to test; train anew with a lower --lr"
            )
        precision = choose_translation_precision("auto", self.device)
        translator = load_translator([self.folder], self.device, precision)
        translator = translator.with_workers(choose_workers(self.device))
        test = make_sample(self.data.splits.test)
        with self.watcher.work("translating the test split", len(test.sources)) as advance:
            output = translate_sample(
                self.folder.name, translator, test, SearchOptions(), on_done=advance
            )
        for fault in output.faults():
            yield Note(f"warning: {fault}")
        report = evaluate(test, [output], self._bleu())
        self.folder.write_evaluation(report.as_json())
        self.folder.update_config(finished=_now(), test_bleu=report.systems[0].overall.bleu)
        yield Evaluated(report, next(filter(_is_typed_easily, test.sources), None))


def _is_typed_easily(line: str) -> bool:
    return 0 < len(line) <= _EASILY_TYPED and line.isprintable() and line[0] not in " -\\"


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
