"""A run folder: what is in it, and how it is written and read without ever being half there.

Nothing in it is a pickle. ``model.safetensors`` holds the best weights, ``last`` what training
goes on from.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from nmt_cli import __version__, replacing
from nmt_cli.corpus.preflight import Fingerprints
from nmt_cli.errors import NmtError, WorkFailed
from nmt_cli.files import json_text, write_whole
from nmt_cli.locking import held
from nmt_cli.models.base import Seq2Seq
from nmt_cli.states import States
from nmt_cli.tokenizer import Normalization, TextRule, Tokenizer
from nmt_cli.untrusted import as_safetensors, read_bytes, read_json, read_tensors, require_own

FORMAT = 1
_NEEDED = {
    "arch": str,
    "options": dict,
    "vocab": dict,
    "tokenizer": dict,
    "src_lang": str,
    "tgt_lang": str,
    "data_hash": str,
    "training": dict,
    "request": dict,
}
"""What ``config.json`` must hold for a run to be used, and of which kind."""
WEIGHTS = "model.safetensors"
_EVALUATION = "eval.json"
_OWN = (
    "config.json", "tokenizer.model", "src.model", "tgt.model", WEIGHTS, "log.jsonl", _EVALUATION,
    "training-pairs.safetensors",
)  # fmt: skip
"""The files of a run, beside the folder ``last``."""
_UNFINISHED = re.compile(
    rf"\.({'|'.join(re.escape(Path(name).stem) for name in _OWN)}|LATEST)\.\d+\.part"
    r"(\.json|\.jsonl|\.model|\.safetensors)?|\.step-\d+\.part"
)
"""What the trainer calls a file or a state that is not whole yet."""
DEFAULT_ROOT = Path("checkpoints")
_DTYPES = {torch.float32, torch.float16, torch.bfloat16, torch.float64}
"""Of weights."""


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = path
        self._config: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.path.resolve().name

    @property
    def log_path(self) -> Path:
        """The JSON-lines log."""
        return self._files / "log.jsonl"

    def files(self) -> list[Path]:
        """List the files that a run has here, beside its resumable state."""
        return [self.path / name for name in _OWN]

    def require_place(self) -> None:
        """Refuse a folder that could not be made.

        Raises:
            NmtError: if it would be within a file.
        """
        for parent in self.path.absolute().parents:
            if parent.exists():
                if not parent.is_dir():
                    raise NmtError(f"{self.path}: {parent} is a file; choose another folder by -o")
                return

    def exists(self) -> bool:
        """Tell whether a run is here.

        Raises:
            NmtError: if there is something that a run could not be written into.
        """
        if self.path.exists() and not self.path.is_dir():
            raise NmtError(f"{self.path}: is a file; choose a folder with -o")
        if self.path.is_symlink() and not self.path.exists():
            raise NmtError(f"{self.path}: is a link to nothing; choose a folder with -o")
        with suppress(NmtError):
            if self._is_ours(read_json(self.path / "config.json")):
                return True
        for name in (*_OWN, "last"):
            if (self.path / name).exists():
                raise NmtError(
                    f"{self.path / name}: would be written over, and is of no run (there is no "
                    "config.json of one beside it); move it away, or choose another folder with -o"
                )
        return False

    @staticmethod
    def _is_ours(config: Any) -> bool:
        """Tell a run's ``config.json``, of any format, from those of other tools."""
        return isinstance(config, dict) and {"format", "arch", "data_hash"} <= config.keys()

    @property
    def states(self) -> States:
        """The resumable states, beside the best weights."""
        return States(self._files / "last", self._files / WEIGHTS, self._mark())

    def _mark(self) -> str | None:
        """Give what all tensors of this run bear; those of an older nmt bear none."""
        return self.config().get("id")

    def can_be_resumed(self) -> bool:
        """Tell whether a state was saved."""
        return (self.path / "last" / "LATEST").is_file()

    def steps(self) -> int:
        """Give the steps taken until the end or, of a run in training, until its last save."""
        saved = 0
        with suppress(NmtError):
            saved = self.states.step()
        return max(self.config()["step"], saved)

    def size(self) -> int:
        """Give its bytes on disk; a file that stands there twice by a link counts once."""
        sizes: dict[int, int] = {}
        for path in self.path.rglob("*"):
            with suppress(FileNotFoundError):  # a run in training replaces its files
                status = path.lstat()
                sizes[status.st_ino] = status.st_size
        return sum(sizes.values())

    def config(self) -> dict[str, Any]:
        """Read ``config.json``.

        Raises:
            NmtError: if it is not there, not JSON, or of another format.
        """
        if self._config is None:
            self._config = self._read_config()
        return self._config

    def _read_config(self) -> dict[str, Any]:
        path = self._files / "config.json"
        if not path.is_file():
            if replacing.is_cut_short(self.path):
                raise NmtError(
                    f"{self.path}: the run is being replaced, or that was cut short; then `nmt "
                    f"train --resume {self.path}` finishes it"
                )
            raise NmtError(
                f"{self.path}: no run here (no config.json); train one with `nmt train -o "
                f"{self.path}`, or see `nmt runs`"
            )
        config = read_json(path)
        if not isinstance(config, dict) or "format" not in config:
            raise NmtError(f"{path}: is not of a run of nmt, which has a 'format'")
        if config["format"] != FORMAT:
            raise NmtError(
                f"{path}: format {config['format']!r}, written by nmt {config.get('nmt')}, but "
                f"this nmt ({__version__}) reads format {FORMAT}; use the other one, or train it "
                "anew"
            )
        for name, kind in _NEEDED.items():
            if not isinstance(config.get(name), kind):
                raise NmtError(f"{path}: damaged: {name!r} is missing or of the wrong kind")
        for name in ("src", "tgt"):
            if not isinstance(config["vocab"].get(name), int):
                raise NmtError(f"{path}: damaged: the size of the {name} vocabulary is missing")
        return config

    def write_config(self, config: dict[str, Any]) -> None:
        """Write ``config.json``, making the folder when it is new."""
        try:
            self._files.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WorkFailed(f"{self._files}: cannot be made: {error.strerror}") from None
        self._config = {"format": FORMAT, **config}
        write_whole(self._files / "config.json", json.dumps(self._config, indent=2) + "\n")

    def update_config(self, **values: Any) -> None:
        """Change some top-level values of ``config.json``."""
        self.write_config({**self.config(), **values})

    def forget_evaluation(self) -> None:
        """Drop the final evaluation, as the weights are no more those that it was about."""
        (self._files / _EVALUATION).unlink(missing_ok=True)
        if self.config().get("test_bleu") is not None:
            self.update_config(test_bleu=None)

    def write_evaluation(self, report: Any) -> None:
        """Write ``eval.json``."""
        write_whole(self._files / _EVALUATION, json_text(report, indent=2) + "\n")

    def clear(self) -> None:
        """Remove what an earlier run left here, and nothing else."""
        for name in _OWN:
            (self.path / name).unlink(missing_ok=True)
        replacing.remove(self.path / "last")

    def write_beside(self) -> None:
        """Leave the run that is here as it is until ``take_place``; write the new one beside it."""
        self._files = replacing.beside(self.path)
        self.discard_beside()

    def is_beside(self) -> bool:
        """Tell whether this run has yet to take the place of another."""
        return self._files != self.path

    def discard_beside(self) -> None:
        """Remove a run that has not taken its place."""
        replacing.remove(replacing.beside(self.path))

    def take_place(self) -> None:
        """Put the run written beside in the place of the old one.

        One rename decides; ``settle`` finishes what is cut short after it.
        """
        if not self.is_beside():
            return
        try:
            replacing.decide(self.path)
            replacing.finish(self.path, WEIGHTS, self.clear)
        except OSError as error:
            raise WorkFailed(f"{self.path}: cannot be replaced: {error.strerror}") from None
        self._files = self.path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from writing here; made as a folder if need be.

        Raises:
            NmtError: if one is at it, or what would be written leads out of the folder.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._refuse_links()
        with held(self.path):
            self._sweep()
            yield

    def _refuse_links(self) -> None:
        """Let nothing that is written or removed here be somewhere else, or a named pipe."""
        names = (*_OWN, ".nmt-lock", "last/LATEST")
        files = [*(self.path / name for name in names), *self.path.glob("last/step-*/*")]
        folders = [self.path / "last", *self.path.glob("last/step-*")]
        for path, as_it_should in (
            *((file, file.is_file()) for file in files),
            *((folder, folder.is_dir()) for folder in folders),
        ):
            if path.is_symlink() or (path.exists() and not as_it_should):
                kind = "a link" if path.is_symlink() else "of another kind than nmt writes"
                raise NmtError(
                    f"{path}: is {kind}, so training here could write elsewhere; put a copy in its "
                    "place, or begin another run from these weights by --init"
                )

    def _sweep(self) -> None:
        """Remove what a killed process was writing; no other can be at it now."""
        for path in (*self.path.glob(".*.part*"), *self.path.glob("last/.*.part")):
            if not _UNFINISHED.fullmatch(path.name):
                continue  # of somebody else
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def settle(self) -> None:
        """Finish replacing a run where that was cut short.

        Raises:
            NmtError: if another process is at it.
        """
        if replacing.is_cut_short(self.path):
            with held(self.path):
                replacing.finish(self.path, WEIGHTS, self.clear)

    def write_tokenizers(self, src: Tokenizer, tgt: Tokenizer) -> None:
        """Write one sentencepiece model, or one a side."""
        if src is tgt:
            write_whole(self._files / "tokenizer.model", src.model)
            return
        write_whole(self._files / "src.model", src.model)
        write_whole(self._files / "tgt.model", tgt.model)

    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Read the tokenizers of both sides; one object when they share it."""
        settings = self.config()["tokenizer"]
        form, lowercase = settings.get("normalization"), settings.get("lowercase")
        if form not in get_args(Normalization) or not isinstance(lowercase, bool):
            raise NmtError(
                f"{self.path / 'config.json'}: damaged: the tokenizer's normalization ({form!r}) "
                f"or lowercase ({lowercase!r}) is missing or unknown"
            )
        rule = TextRule(form, lowercase)
        if not settings.get("separate"):
            shared = self._tokenizer("tokenizer.model", rule, "tgt")
            return shared, shared
        return self._tokenizer("src.model", rule, "src"), self._tokenizer("tgt.model", rule, "tgt")

    def _tokenizer(self, name: str, rule: TextRule, side: str) -> Tokenizer:
        path, wanted = self._files / name, self.config()["vocab"][side]
        model = read_bytes(path)
        if not model:
            raise NmtError(f"{path}: has no bytes; put the run's own back")
        try:
            found = Tokenizer(model, rule)
            found.raw_pieces()  # a damaged one may hold what is no text
        except (RuntimeError, ValueError) as error:
            raise NmtError(f"{path}: not a readable sentencepiece model ({error})") from None
        if len(found) != wanted:
            raise NmtError(
                f"{path}: has {len(found)} entries, but config.json says {wanted}; it is damaged "
                "or of another run"
            )
        return found

    def write_weights(self, weights: dict[str, Tensor]) -> None:
        """Replace ``model.safetensors``."""
        write_whole(self._files / WEIGHTS, as_safetensors(weights, self._mark()))

    def load_weights(self, model: Seq2Seq) -> None:
        """Copy ``model.safetensors`` into a model of the same shape.

        Raises:
            NmtError: if the file is not there, is corrupt, or does not fit.
        """
        path = self._weights_path()
        require_own(path, self._mark())
        weights = read_tensors(path)
        self._check_shapes({name: tuple(tensor.shape) for name, tensor in weights.items()}, model)
        for name, tensor in weights.items():
            if tensor.dtype not in _DTYPES:
                raise NmtError(f"{path}: {name} is of type {tensor.dtype}, which no weights are")
            if not tensor.to(torch.float32).isfinite().all():
                raise NmtError(
                    f"{path}: {name} holds a number that is not finite (nan or inf), so nothing "
                    "can be translated with it; take another run"
                )
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(weights[name])

    def require_fit(self, model: Seq2Seq) -> None:
        """Compare the shapes of ``model.safetensors`` with a model's, reading no weight.

        A model on the meta device will do, so that an absurd config is found before it takes
        memory.

        Raises:
            NmtError: as ``load_weights``.
        """
        from safetensors import SafetensorError, safe_open

        path = self._weights_path()
        try:
            with safe_open(path, "pt") as file:
                shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise NmtError(f"{path}: cannot be read ({error})") from None
        self._check_shapes(shapes, model)

    def _check_shapes(self, found: Mapping[str, tuple[int, ...]], model: Seq2Seq) -> None:
        wanted = {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}
        wrong = [
            name
            for name in sorted(found.keys() | wanted.keys())
            if found.get(name) != wanted.get(name)
        ]
        if wrong:
            raise NmtError(f"{self._files / WEIGHTS}: does not fit config.json, at {wrong[0]}")

    def _weights_path(self) -> Path:
        path = self._files / WEIGHTS
        if not path.is_file():
            go_on = f"go on by `nmt train --resume {self.path}`"
            more = go_on if self.can_be_resumed() else "train it anew"
            raise NmtError(
                f"{path}: no such file; a run has weights after its first validation: {more}"
            )
        return path

    def write_fingerprints(self, fingerprints: Fingerprints) -> None:
        """Keep the hashes of the training pairs, so that later test sets can be checked."""
        tensor = torch.from_numpy(np.unique(fingerprints))
        write_whole(
            self._files / "training-pairs.safetensors",
            as_safetensors({"pairs": tensor}, self._mark()),
        )

    def fingerprints(self) -> Fingerprints:
        """Read the hashes of the training pairs; none if they were not kept."""
        path = self._files / "training-pairs.safetensors"
        if not path.is_file():
            return np.array([], np.int64)
        require_own(path, self._mark())
        tensors = read_tensors(path)
        pairs = tensors.get("pairs")
        if pairs is None or pairs.dtype != torch.int64 or pairs.ndim != 1:
            raise NmtError(f"{path}: damaged: has no 'pairs', one row of 64-bit numbers")
        return pairs.numpy()

    def truncate_log(self, size: int) -> bool:
        """Drop log lines written after the state that is resumed from, or torn; tell of lost ones.

        Args:
            size: of the log when the state was saved, in bytes.
        """
        if not self.log_path.is_file():
            return size > 0
        found = self.log_path.stat().st_size
        if found < size:
            size = self.log_path.read_bytes().rfind(b"\n") + 1
            os.truncate(self.log_path, size)
            return True
        os.truncate(self.log_path, size)
        return False

    def append_log(self, record: dict[str, Any]) -> int:
        """Add a line to the log and give the log's size in bytes."""
        try:
            with self.log_path.open("ab") as file:
                file.write(json_text(record, ascii_only=True).encode("utf-8") + b"\n")
                return file.tell()
        except OSError as error:
            raise WorkFailed(f"{self.log_path}: cannot be written: {error.strerror}") from None


def find_runs(root: Path = DEFAULT_ROOT) -> Iterator[RunFolder]:
    """Yield the runs under a folder, two levels deep; a hidden folder is none."""
    for config in sorted([*root.glob("*/config.json"), *root.glob("*/*/config.json")]):
        if not any(part.startswith(".") for part in config.relative_to(root).parts):
            yield RunFolder(config.parent)


def newest_run(root: Path = DEFAULT_ROOT) -> RunFolder:
    """Give the run that finished last.

    Raises:
        NmtError: if none has finished.
    """
    runs = list(find_runs(root))
    finished = [run for run in runs if _finished(run)]
    if not finished:
        begun = [str(run.path) for run in runs if (run.path / WEIGHTS).is_file()]
        raise NmtError(
            f"no finished run under {root}/; "
            + (f"one that is not: -m {begun[-1]}" if begun else "train one with `nmt train`")
            + ", or give -m RUN"
        )
    return max(finished, key=_finished)


def _finished(run: RunFolder) -> str:
    try:
        return str(run.config().get("finished") or "")
    except NmtError:
        return ""


def same_vocabulary(tokenizers: Iterable[Tokenizer]) -> bool:
    """Tell whether tokenizers are one and the same model."""
    return len({tokenizer.model for tokenizer in tokenizers}) == 1
