"""Training speed in bf16 against fp32 on this CPU, by architecture: the ground of ``auto``.

    python benchmarks/precision.py

The two take turns on the same batches of toy; the median step of each turn counts.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator

import torch
from runner import keep

from nmt_cli import models, tokenizer
from nmt_cli.batches import BatchSize, TrainingBatches, with_ends
from nmt_cli.config import Config, DataConfig, End, TokenizerConfig, resolve_training
from nmt_cli.corpus import toy
from nmt_cli.precision import Precision
from nmt_cli.training import Score, Step, Trainer


def steps(arch_name: str, precision: str, text: tokenizer.Tokenizer) -> Iterator[Step]:
    """Train one architecture at its preset without end."""
    arch = models.architecture(arch_name)
    torch.manual_seed(1)
    vocab = models.Vocabulary(len(text), len(text), True)
    model = arch.build(models.resolve_options(arch_name, "small", {}), vocab)
    pairs = toy.make(toy.ToyOptions(train=4000))["train"]
    ids = [with_ends(text.encode(pair.src), text.encode(pair.tgt)) for pair in pairs]
    batches = TrainingBatches(ids, BatchSize(arch.recipe.batch_tokens), 1)
    config = Config(
        arch_name, {}, DataConfig("toy", None, None, None, None, None, "strict", 200),
        TokenizerConfig("bpe", None, False, "nfc", False),
        {"validate_every": 10**9, "save_every": 10**9}, arch.recipe.batch_tokens, None,
        End(steps=10**9), 1, "auto", "cpu", None,
    )  # fmt: skip
    options = resolve_training(config, batches.per_epoch)
    trainer = Trainer(
        model, batches, lambda _: Score(0, 0), options, Precision(precision, ""), vocab.tgt
    )
    return (event for event in trainer.run(lambda: False) if isinstance(event, Step))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="steps a turn")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    known = [arch.name for arch in models.architectures()]
    parser.add_argument("--archs", nargs="+", choices=known, default=known)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    pairs = toy.make(toy.ToyOptions(train=4000))["train"]
    rule = tokenizer.TextRule()
    lines = [text for pair in pairs for text in pair]
    trained = tokenizer.train(lines, rule, "bpe", 4000, lambda asked, given: None)
    text = tokenizer.Tokenizer(trained.model, rule)
    results = {}
    for arch in arguments.archs:
        runs = {name: steps(arch, name, text) for name in ("fp32", "bf16")}
        speeds: dict[str, list[float]] = {"fp32": [], "bf16": []}
        for _ in range(arguments.turns):
            for name, run in runs.items():
                turn = [next(run).tokens_per_s for _ in range(arguments.steps)]
                speeds[name].append(statistics.median(turn))
        ratio = statistics.median(
            b / f for b, f in zip(speeds["bf16"], speeds["fp32"], strict=True)
        )
        results[arch] = {"tokens_per_s": speeds, "bf16_over_fp32": ratio}
        print(f"{arch:12} bf16 / fp32 = {ratio:.2f}", flush=True)
    keep("precision", {"threads": arguments.threads, "torch": torch.__version__, **results})


if __name__ == "__main__":
    main()
