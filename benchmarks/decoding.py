"""Translating speed against CTranslate2, the same weights on the same sentences.

    python benchmarks/decoding.py RUN --src test.en --ref test.de

RUN is a trained transformer; it is exported first. Both engines use processes or threads of one
core each and batches of 64 sentences or about as many; they take turns, and the median turn counts.
BLEU shows that both do the same work. Writes benchmarks/raw/decoding.json.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from runner import keep
from sentencepiece import SentencePieceProcessor

from nmt_cli.batches import BatchSize
from nmt_cli.corpus.lines import read_lines
from nmt_cli.export.ctranslate2 import write_ctranslate2
from nmt_cli.metrics import Bleu
from nmt_cli.precision import choose_translation_precision
from nmt_cli.runs import RunFolder
from nmt_cli.search import SearchOptions
from nmt_cli.translation import load_translator

BATCH = 64
BATCH_TOKENS = 2048
CPU = torch.device("cpu")
Engine = Callable[[list[str], int], list[str]]


def ours(run: RunFolder, precision: Any, workers: int) -> Engine:
    """Make the function that translates lines with a beam by nmt."""
    number_format = choose_translation_precision(precision, CPU)
    translator = load_translator([run], CPU, number_format).with_workers(workers)

    def translate(lines: list[str], beam: int) -> list[str]:
        found = translator.translate(lines, SearchOptions(beam=beam), BatchSize(BATCH_TOKENS))
        return [translation.outputs[0].text for translation in found]

    return translate


def theirs(folder: Path, precision: str, workers: int) -> Engine:
    """Make the same function by CTranslate2."""
    engine = ctranslate2.Translator(
        str(folder), compute_type=precision, inter_threads=workers, intra_threads=1
    )
    src, tgt = (
        SentencePieceProcessor(str(folder / f"{side}.spm")) for side in ("source", "target")
    )

    def translate(lines: list[str], beam: int) -> list[str]:
        batch = [src.encode(line, out_type=str) for line in lines]
        results = engine.translate_batch(
            batch, beam_size=beam, max_batch_size=BATCH, disable_unk=True
        )
        return [tgt.decode(result.hypotheses[0]) for result in results]

    return translate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--ref", type=Path, required=True)
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
    results: dict[str, Any] = {"workers": workers, "sentences": len(lines)}
    with tempfile.TemporaryDirectory() as folder:
        write_ctranslate2(run, Path(folder), "fp32")
        for precision in ("float32", "int8"):
            engines[f"CTranslate2 {precision}"] = theirs(Path(folder), precision, workers)
        for beam in arguments.beams:
            seconds: dict[str, list[float]] = {name: [] for name in engines}
            for turn in range(arguments.turns + 1):
                for name, engine in engines.items():
                    began = time.perf_counter()
                    written = engine(lines, beam)
                    if turn == 0:  # warms up
                        score = bleu.score(bleu.statistics(written, references).sum(axis=0))
                        results[f"{name} beam {beam}"] = {"bleu": score}
                    else:
                        seconds[name].append(time.perf_counter() - began)
            for name, spent in seconds.items():
                speed = len(lines) / statistics.median(spent)
                result = results[f"{name} beam {beam}"]
                result |= {"seconds": spent, "sentences_per_s": speed}
                print(f"{name:20} beam {beam} {speed:6.0f} sentences/s  BLEU {result['bleu']:.1f}")
    versions = {"torch": torch.__version__, "ctranslate2": ctranslate2.__version__}
    keep("decoding", {**results, "versions": versions})


if __name__ == "__main__":
    main()
