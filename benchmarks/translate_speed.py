"""Translating speed against CTranslate2 and OpenNMT-py, in turns on the same sentences.

    python benchmarks/translate_speed.py RUN --src test.en --ref test.de --opennmt PYTHON

RUN is trained with the sizes of train_speed.py. CTranslate2 gets the same weights, if it knows the
architecture; BLEU shows that both do the same work. OpenNMT-py, installed in the environment of
PYTHON, gets a random model of the same shape that writes 16 tokens a sentence, and its own clock
counts, without its start. nmt and CTranslate2 use --workers of one core each, OpenNMT-py so many
threads. Batches are what nmt takes by itself, and 64 sentences for the others; CTranslate2 in fp32
has a second chance with 128, its fastest. The median turn counts.

Then whole processes, start included: `nmt translate` of all the sentences and of one.
Writes benchmarks/raw/translate-speed-ARCH.json.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ctranslate2
import torch
import yaml
from runner import keep
from sentencepiece import SentencePieceProcessor
from train_speed import MODELS, opennmt_config, write_words

from nmt_cli.batches import BatchSize, IdPair
from nmt_cli.corpus.lines import read_lines
from nmt_cli.errors import NmtError
from nmt_cli.export.ctranslate2 import write_ctranslate2
from nmt_cli.metrics import Bleu
from nmt_cli.precision import choose_translation_precision
from nmt_cli.runs import RunFolder
from nmt_cli.search import SearchOptions
from nmt_cli.tokenizer import EOS
from nmt_cli.translation import default_batch_tokens, load_translator

BATCH = 64
CPU = torch.device("cpu")


class Turn(NamedTuple):
    """What an engine wrote, if that means anything, and how long it took."""

    seconds: float
    written: list[str] | None = None


Engine = Callable[[list[str], int], Turn]
"""Translates lines with a beam."""


def timed(translate: Callable[[list[str], int], list[str]]) -> Engine:
    """Take the time of a function that translates."""

    def turn(lines: list[str], beam: int) -> Turn:
        began = time.perf_counter()
        written = translate(lines, beam)
        return Turn(time.perf_counter() - began, written)

    return turn


def ours(run: RunFolder, precision: Any, workers: int) -> Engine:
    """Translate by nmt."""
    number_format = choose_translation_precision(precision, CPU)
    translator = load_translator([run], CPU, number_format).with_workers(workers)

    def translate(lines: list[str], beam: int) -> list[str]:
        found = translator.translate(
            lines, SearchOptions(beam=beam), BatchSize(default_batch_tokens(beam))
        )
        return [translation.outputs[0].text for translation in found]

    return timed(translate)


def by_ctranslate2(folder: Path, precision: str, workers: int, sentences: int = BATCH) -> Engine:
    """Translate by CTranslate2."""
    engine = ctranslate2.Translator(
        str(folder), compute_type=precision, inter_threads=workers, intra_threads=1
    )
    src, tgt = (
        SentencePieceProcessor(str(folder / f"{side}.spm")) for side in ("source", "target")
    )

    def translate(lines: list[str], beam: int) -> list[str]:
        batch = [src.encode(line, out_type=str) for line in lines]
        results = engine.translate_batch(
            batch, beam_size=beam, max_batch_size=sentences, disable_unk=True
        )
        return [tgt.decode(result.hypotheses[0]) for result in results]

    return timed(translate)


def by_opennmt(python: Path, run: RunFolder, folder: Path, threads: int) -> Engine:
    """Translate by OpenNMT-py, with a random model of the shape of the run's."""
    config = run.config()
    shape = next(
        name
        for name, (arch, options) in MODELS.items()
        if arch == config["arch"] and options.items() <= config["options"].items()
    )
    text = run.tokenizers()[0]
    words = [f"w{i}" for i in range(EOS + 1, len(text))]
    write_words([IdPair([4, EOS], [2, 4, EOS])] * 64, words, folder)
    settings = {**opennmt_config(shape, folder, 1), "save_checkpoint_steps": 1}
    (folder / "opennmt.yaml").write_text(yaml.safe_dump(settings))
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    # it loads its own checkpoint, made here a moment ago, by a pickle that torch now refuses
    environment["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"

    def call(*command: object) -> str:
        done = subprocess.run(
            [str(python), "-m", *map(str, command)],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout + done.stderr

    call("onmt.bin.train", "-config", folder / "opennmt.yaml")
    (model,) = folder.glob("opennmt_step_1.pt")

    def turn(lines: list[str], beam: int) -> Turn:
        encoded = (" ".join(f"w{i}" for i in text.encode(line)) for line in lines)
        (folder / "test.src").write_text("\n".join(encoded) + "\n")
        said = call(
            "onmt.bin.translate", "-model", model, "-src", folder / "test.src",
            "-output", folder / "test.out", "-beam_size", beam, "-batch_size", BATCH,
            "-min_length", 16, "-max_length", 16, "-report_time",
        )  # fmt: skip
        found = re.search(r"Total translation time \(s\): ([\d.]+)", said)
        assert found, said
        return Turn(float(found[1]))

    return turn


def whole_process(run: Path, lines: list[str], *options: str) -> float:
    """Time ``nmt translate`` from its start to its end."""
    command = [sys.executable, "-m", "nmt_cli", "translate", "-m", str(run), "--quiet", *options]
    began = time.perf_counter()
    subprocess.run(
        command, input="\n".join(lines) + "\n", text=True, check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--ref", type=Path, required=True)
    parser.add_argument("--opennmt", type=Path, help="a Python that has OpenNMT-py")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    arguments = parser.parse_args()
    run, workers = RunFolder(arguments.run), arguments.workers
    lines, references = list(read_lines(arguments.src)), list(read_lines(arguments.ref))
    bleu = Bleu("13a")
    engines: dict[str, Engine] = {}
    for precision in ("fp32", "bf16", "int8"):
        engines[f"nmt {precision}"] = ours(run, precision, workers)
    versions = {"torch": torch.__version__, "ctranslate2": ctranslate2.__version__}
    results: dict[str, Any] = {"workers": workers, "sentences": len(lines), "versions": versions}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        try:
            write_ctranslate2(run, folder, "fp32")
        except NmtError as refused:
            print(f"CTranslate2: {refused}")
        else:
            for precision in ("float32", "int8"):
                name = f"CTranslate2 {precision}"
                engines[name] = by_ctranslate2(folder, precision, workers)
            name = f"CTranslate2 float32, {2 * BATCH} at once"
            engines[name] = by_ctranslate2(folder, "float32", workers, 2 * BATCH)
        if arguments.opennmt:
            engines["OpenNMT-py"] = by_opennmt(arguments.opennmt, run, folder, workers)
        for beam in arguments.beams:
            turns: dict[str, list[Turn]] = {name: [] for name in engines}
            for _ in range(arguments.turns + 1):
                for name, engine in engines.items():
                    turns[name].append(engine(lines, beam))
            for name, (first, *rest) in turns.items():  # the first warmed up
                spent = [turn.seconds for turn in rest]
                speed = len(lines) / statistics.median(spent)
                result: dict[str, Any] = {"seconds": spent, "sentences_per_s": speed}
                if first.written is not None:
                    statistic = bleu.statistics(first.written, references).sum(axis=0)
                    result["bleu"] = bleu.score(statistic)
                results[f"{name} beam {beam}"] = result
                score = f"  BLEU {result['bleu']:.1f}" if "bleu" in result else ""
                print(f"{name:33} beam {beam} {speed:6.0f} sentences/s{score}", flush=True)
    for name, given, options in (
        ("all, greedy", lines, ("--beam", "1")),
        ("all, beam 5", lines, ()),
        ("one, beam 5", ["A man."], ()),
    ):
        spent = [whole_process(arguments.run, given, *options) for _ in range(arguments.turns)]
        results[f"process: {name}"] = spent
        print(f"whole process: {name} {statistics.median(spent):.2f} s", flush=True)
    keep(f"translate-speed-{run.config()['arch']}", results)


if __name__ == "__main__":
    main()
