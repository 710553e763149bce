"""Training speed against OpenNMT-py and JoeyNMT: the same ids, sizes, threads, in turns.

    python benchmarks/train_speed.py MULTI30K --out DIR --opennmt PYTHON --joeynmt PYTHON

Three models with a shared vocabulary of 8,000, 4,096 tokens a batch, dropout and label smoothing
0.1: a Transformer of 3+3 layers, d 256, FFN 1,024, 4 heads; an LSTM of 256 a direction and a
decoder of 512, with Luong's general attention and input feeding, and with Bahdanau's. A peer is a
Python in whose environment it is installed; its own log gives its speed, in real target tokens a
second. OpenNMT-py knows additive attention after the recurrence only, so that is its Bahdanau.

For the Transformer it gives also the share of the peak of a large bf16 product, measured in the
same turns, that goes into the products which the model needs: 6 operations for each weight and
real token, and attention. The median turn counts. Writes benchmarks/raw/train-speed.json.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import yaml
from runner import keep
from stepping import Stepper, target_tokens

from nmt_cli import tokenizer
from nmt_cli.batches import Batch, IdPair, with_ends
from nmt_cli.corpus.lines import read_lines
from nmt_cli.models.stack import Stack
from nmt_cli.precision import PrecisionName

VOCABULARY, BATCH_TOKENS, DROPOUT, SMOOTHING = 8000, 4096, 0.1, 0.1
TRANSFORMER = {"d_model": 256, "d_ffn": 1024, "encoder_layers": 3, "decoder_layers": 3}
LSTM = {"d_model": 512, "d_embed": 512}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer", {**TRANSFORMER, "heads": 4}),
    "luong": ("lstm-attn", {**LSTM, "attention": "luong-general", "input_feeding": True}),
    "bahdanau": ("lstm-attn", {**LSTM, "attention": "bahdanau"}),
}
Turn = Callable[[], float]
"""Trains for a turn and gives target tokens a second."""


def read_pairs(folder: Path) -> tuple[list[IdPair], list[str]]:
    """Read Multi30k's training pairs as ids, and name the ids that are words."""
    sides = [list(read_lines(folder / f"train.{lang}.gz")) for lang in ("en", "de")]
    rule = tokenizer.TextRule()
    model = tokenizer.train([*sides[0], *sides[1]], rule, "bpe", VOCABULARY)
    text = tokenizer.Tokenizer(model, rule)
    pairs = [with_ends(text.encode(src), text.encode(tgt)) for src, tgt in zip(*sides, strict=True)]
    return pairs, [f"w{i}" for i in range(tokenizer.EOS + 1, len(text))]


def write_words(pairs: Sequence[IdPair], words: list[str], out: Path) -> None:
    """Write what the peers read: a word for each id, and their list."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "vocab").write_text("\n".join(words) + "\n")
    for side, ids in (("src", [p.src[:-1] for p in pairs]), ("tgt", [p.tgt[1:-1] for p in pairs])):
        for split, rows in (("train", ids), ("dev", ids[:10])):
            lines = (" ".join(f"w{i}" for i in row) for row in rows)
            (out / f"{split}.{side}").write_text("\n".join(lines) + "\n")


def opennmt_config(model: str, out: Path, steps: int) -> dict[str, Any]:
    """Say in OpenNMT-py's words what is trained."""
    shape: dict[str, Any] = {
        "encoder_type": "brnn",
        "decoder_type": "rnn",
        "rnn_type": "LSTM",
        "layers": 1,
        "hidden_size": LSTM["d_model"],
        "word_vec_size": LSTM["d_embed"],
        "global_attention": "general" if model == "luong" else "mlp",
        "input_feed": 1,
    }
    if model == "transformer":
        shape = {
            "encoder_type": "transformer",
            "decoder_type": "transformer",
            "layers": 3,
            "hidden_size": 256,
            "word_vec_size": 256,
            "transformer_ff": 1024,
            "heads": 4,
            "position_encoding": True,
        }
    return {
        "data": {"train": {"path_src": str(out / "train.src"), "path_tgt": str(out / "train.tgt")}},
        "src_vocab": str(out / "vocab"),
        "share_vocab": True,
        "src_vocab_size": VOCABULARY,
        "tgt_vocab_size": VOCABULARY,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "dropout": [DROPOUT],
        "attention_dropout": [DROPOUT],
        "label_smoothing": SMOOTHING,
        "optim": "adam",
        "learning_rate": 0.001,
        "batch_type": "tokens",
        "batch_size": BATCH_TOKENS,
        "bucket_size": 262144,
        "normalization": "tokens",
        "num_workers": 0,
        "train_steps": steps,
        "valid_steps": 10**6,
        "save_checkpoint_steps": 10**6,
        "save_model": str(out / "opennmt"),
        "report_every": 10,
        **shape,
    }


def joeynmt_config(model: str, out: Path, steps: int) -> dict[str, Any]:
    """Say in JoeyNMT's words what is trained."""
    language = {"max_length": 256, "level": "word", "voc_file": str(out / "vocab")}
    both: dict[str, Any] = {"dropout": DROPOUT}
    if model == "transformer":
        embeddings = {"embedding_dim": 256, "scale": True, "dropout": DROPOUT}
        both |= {
            "type": "transformer",
            "num_layers": 3,
            "num_heads": 4,
            "hidden_size": 256,
            "ff_size": 1024,
            "layer_norm": "pre",
            "embeddings": embeddings,
        }
        encoder, decoder = both, both
    else:
        embeddings = {"embedding_dim": LSTM["d_embed"]}
        both |= {
            "type": "recurrent",
            "rnn_type": "lstm",
            "num_layers": 1,
            "embeddings": embeddings,
        }
        encoder = {**both, "hidden_size": LSTM["d_model"] // 2, "bidirectional": True}
        decoder = {
            **both,
            "hidden_size": LSTM["d_model"],
            "hidden_dropout": DROPOUT,
            "input_feeding": True,
            "init_hidden": "bridge",
            "attention": model,
        }
    special = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    return {
        "name": model,
        "joeynmt_version": "2.3.0",
        "model_dir": str(out / f"joeynmt-{model}"),
        "use_cuda": False,
        "fp16": False,
        "data": {
            "train": str(out / "train"),
            "dev": str(out / "dev"),
            "dataset_type": "plain",
            "src": {"lang": "src", **language},
            "trg": {"lang": "tgt", **language},
            "special_symbols": {
                **{f"{name}_token": symbol for name, symbol in special.items()},
                **{f"{name}_id": number for number, name in enumerate(special)},
            },
        },
        "testing": {"eval_metrics": ["bleu"]},
        "training": {
            "optimizer": "adamw",
            "learning_rate": 0.001,
            "clip_grad_norm": 1.0,
            "loss": "crossentropy",
            "label_smoothing": SMOOTHING,
            "batch_size": BATCH_TOKENS,
            "batch_type": "token",
            "normalization": "tokens",
            "updates": steps,
            "validation_freq": 10**6,
            "logging_freq": 5,
            "early_stopping_metric": "loss",
            "scheduling": "plateau",
            "overwrite": True,
            "print_valid_sents": [0],
        },
        "model": {
            "initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": encoder,
            "decoder": decoder,
        },
    }


_MEASURED = (
    "import resource, subprocess, sys; code = subprocess.run(sys.argv[1:]).returncode; "
    "print('peak KB', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)"
)
"""Runs a command and says how much memory it took at most."""


def peak_megabytes(said: str) -> float:
    """Read what a measured command took."""
    return int(said.rpartition("peak KB")[2].split()[0]) / 1024


def our_memory(arguments: argparse.Namespace, model: str) -> float:
    """Train for a turn in a process of its own, and give its peak."""
    command = [sys.executable, "-c", _MEASURED, sys.executable, __file__, str(arguments.data)]
    command += ["--out", str(arguments.out), "--threads", str(arguments.threads)]
    command += ["--steps", str(arguments.steps), "--steps-of", model]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return peak_megabytes(done.stdout)


MEMORY: dict[str, float] = {}
"""Peak of each peer's last turn, by name."""


def peer(name: str, command: list[str], speed: re.Pattern[str], out: Path, threads: int) -> float:
    """Run a peer and give the median of the speeds that it reports, but for the first."""
    command = [sys.executable, "-c", _MEASURED, *command]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run(
        command, cwd=out, env=environment, capture_output=True, text=True, check=False
    )
    speeds = [float(found) for found in speed.findall(done.stdout + done.stderr)]
    MEMORY[name] = peak_megabytes(done.stdout)
    if len(speeds) < 2:
        raise SystemExit(f"{' '.join(command)}: no speeds in\n{done.stdout}{done.stderr}")
    return statistics.median(speeds[1:])


def opennmt(python: Path, model: str, out: Path, steps: int, threads: int) -> float:
    """Train for a turn with OpenNMT-py."""
    config = out / f"opennmt-{model}.yaml"
    config.write_text(yaml.safe_dump(opennmt_config(model, out, steps)))
    command = [str(python), "-m", "onmt.bin.train", "-config", str(config)]
    return peer("OpenNMT-py", command, re.compile(r"/ *(\d+) tok/s"), out, threads)


def joeynmt(python: Path, model: str, out: Path, steps: int, threads: int) -> float:
    """Train for a turn with JoeyNMT."""
    config = out / f"joeynmt-{model}.yaml"
    config.write_text(yaml.safe_dump(joeynmt_config(model, out, steps)))
    command = [str(python), "-m", "joeynmt", "train", str(config), "--skip-test"]
    return peer("JoeyNMT", command, re.compile(r"Tokens per Sec: *(\d+)"), out, threads)


def our_stepper(model: str, pairs: Sequence[IdPair], precision: PrecisionName) -> Stepper:
    """Make what trains one of the models."""
    arch, options = MODELS[model]
    given = {**options, "dropout": DROPOUT}
    return Stepper(arch, given, pairs, VOCABULARY, precision, BATCH_TOKENS)


class Ours:
    """Training steps of nmt, turn by turn; the warm-up is taken first."""

    def __init__(self, stepper: Stepper, steps: int) -> None:
        self.stepper, self.steps = stepper, steps
        stepper.take(3)
        self.work: list[float] = []
        """GFLOP a second of the products that a Transformer needs, turn by turn."""

    def __call__(self) -> float:
        """Train for a turn."""
        seconds, batches = self.stepper.take(self.steps)
        if isinstance(self.stepper.model, Stack):
            self.work.append(products(self.stepper.model, batches) / seconds / 1e9)
        return target_tokens(batches) / seconds


def products(model: Stack, batches: Sequence[Batch]) -> float:
    """Count the operations of a Transformer's matrix products over real tokens, both ways."""
    read = {"encoder": 0, "key_value": 0}
    written = 0
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2 or name == "src_embedding.weight":
            continue
        which = next((part for part in read if part in name), None)
        if which:
            read[which] += parameter.numel()
        else:
            written += parameter.numel()
    D, (encoder, decoder) = model.d_model, (len(model.encoder), len(model.decoder))
    total = 0.0
    for batch in batches:
        S = batch.src_mask.sum(1).double()
        T = batch.tgt_mask[:, 1:].sum(1).double()
        total += 6 * (sum(read.values()) * S.sum() + written * T.sum()).item()
        attended = encoder * S * S + decoder * (T * T + T * S)
        total += 12 * D * attended.sum().item()
    return total


def peak(size: int = 4096, times: int = 5) -> float:
    """Measure GFLOP a second of a large product in bf16."""
    a, b = (torch.randn(size, size).bfloat16() for _ in range(2))
    a @ b
    began = perf_counter()
    for _ in range(times):
        a @ b
    return 2 * size**3 * times / (perf_counter() - began) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of Multi30k")
    parser.add_argument("--out", type=Path, required=True, help="folder for the peers' files")
    parser.add_argument("--opennmt", type=Path, help="a Python that has OpenNMT-py")
    parser.add_argument("--joeynmt", type=Path, help="a Python that has JoeyNMT")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="of nmt and OpenNMT-py in a turn")
    parser.add_argument("--steps-of", choices=MODELS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    out, threads, steps = arguments.out.absolute(), arguments.threads, arguments.steps
    torch.set_num_threads(threads)
    pairs, words = read_pairs(arguments.data)
    if arguments.steps_of:
        our_stepper(arguments.steps_of, pairs, "bf16").take(steps)
        return
    write_words(pairs, words, out)
    results: dict[str, Any] = {"threads": threads, "torch": torch.__version__}
    results["machine"] = platform.processor() or platform.machine()
    for model in arguments.models:
        ours = {
            precision: Ours(our_stepper(model, pairs, precision), steps)
            for precision in ("bf16", "fp32")
        }
        runs: dict[str, Turn] = {f"nmt {precision}": turn for precision, turn in ours.items()}
        if arguments.opennmt:
            runs["OpenNMT-py"] = partial(opennmt, arguments.opennmt, model, out, steps, threads)
        if arguments.joeynmt:
            runs["JoeyNMT"] = partial(joeynmt, arguments.joeynmt, model, out, steps // 2, threads)
        speeds: dict[str, list[float]] = {name: [] for name in runs}
        peaks = []
        for _ in range(arguments.turns):
            for name, turn in runs.items():
                speeds[name].append(turn())
            peaks.append(peak())
        memory = {"nmt bf16": our_memory(arguments, model), **MEMORY}
        found: dict[str, Any] = {"tokens_per_s": speeds, "peak_megabytes": memory}
        for name, turns in speeds.items():
            ratio = statistics.median(a / b for a, b in zip(speeds["nmt bf16"], turns, strict=True))
            median = statistics.median(turns)
            taken = f"  at most {memory[name]:,.0f} MB" if name in memory else ""
            print(
                f"{model:12} {name:12} {median:7,.0f} tokens/s  nmt bf16 is {ratio:.2f} x{taken}",
                flush=True,
            )
        if model == "transformer":
            share = [w / p for w, p in zip(ours["bf16"].work, peaks, strict=True)]
            found |= {"bf16_peak_gflops": peaks, "share_of_peak": share}
            print(f"{model:12} products: {statistics.median(share):.0%} of the peak in bf16")
        results[model] = found
        keep("train-speed", results)


if __name__ == "__main__":
    main()
