"""Training speed in bf16 against fp32 on this CPU, by architecture: the ground of ``auto``.

    python benchmarks/precision.py

The two take turns on the same batches of toy; the median turn counts.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from runner import keep
from stepping import Stepper, target_tokens

from nmt_cli import models, tokenizer
from nmt_cli.batches import with_ends
from nmt_cli.corpus import toy


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
    trained = tokenizer.train(lines, rule, "bpe", 4000)
    text = tokenizer.Tokenizer(trained, rule)
    ids = [with_ends(text.encode(pair.src), text.encode(pair.tgt)) for pair in pairs]
    results = {}
    for arch in arguments.archs:
        runs = {name: Stepper(arch, {}, ids, len(text), name) for name in ("fp32", "bf16")}
        speeds: dict[str, list[float]] = {"fp32": [], "bf16": []}
        for _ in range(arguments.turns):
            for name, run in runs.items():
                seconds, batches = run.take(arguments.steps)
                speeds[name].append(target_tokens(batches) / seconds)
        ratio = statistics.median(
            b / f for b, f in zip(speeds["bf16"], speeds["fp32"], strict=True)
        )
        results[arch] = {"tokens_per_s": speeds, "bf16_over_fp32": ratio}
        print(f"{arch:12} bf16 / fp32 = {ratio:.2f}", flush=True)
    keep("precision", {"threads": arguments.threads, "torch": torch.__version__, **results})


if __name__ == "__main__":
    main()
