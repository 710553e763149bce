"""The scan against a loop over unbound steps: forward and backward, medians of alternating turns.

    python benchmarks/scan.py

Writes benchmarks/raw/scan.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from runner import keep
from torch import Tensor

from nmt_cli.models.scan import scan
from nmt_cli.precision import use_fast_kernels

SHAPES = [
    (1, 1024, 64),
    (1, 1024, 256),
    (4, 1024, 256),
    (32, 1024, 256),
    (64, 32, 256),
    (4, 1024, 256, 8),
    (64, 32, 256, 8),
]
"""(B, T, D), and (B, T, E, N) as Mamba has them."""


def loop(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """Take one step after the other."""
    states = []
    for a_t, b_t in zip(a.unbind(1), b.unbind(1), strict=True):
        start = a_t * start + b_t
        states.append(start)
    return torch.stack(states, 1)


def seconds(way: Callable[..., Tensor], inputs: list[Tensor]) -> float:
    """Time one forward and backward."""
    began = time.perf_counter()
    torch.autograd.grad(way(*inputs).sum(), inputs)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    use_fast_kernels(torch.device("cpu"))  # as training does: freed memory is kept
    results = []
    for shape in SHAPES:
        first = (shape[0], *shape[2:])
        inputs = [torch.rand(shape), torch.randn(shape), torch.randn(first)]
        inputs = [x.requires_grad_() for x in inputs]
        times: dict[str, list[float]] = {"scan": [], "loop": []}
        for turn in range(arguments.turns + 1):
            for name, way in (("scan", scan), ("loop", loop)):
                taken = seconds(way, inputs)
                if turn:  # the first warms up
                    times[name].append(taken)
        medians = {name: statistics.median(values) for name, values in times.items()}
        result = {"shape": shape, "threads": torch.get_num_threads(), **medians}
        results.append(result)
        print(
            f"{shape!s:20}  scan {1000 * medians['scan']:8.2f} ms  "
            f"loop {1000 * medians['loop']:8.2f} ms  ratio {medians['loop'] / medians['scan']:.1f}",
            flush=True,
        )
        keep("scan", results)


if __name__ == "__main__":
    main()
