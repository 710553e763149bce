"""Which device and which precision a run uses, by a fixed rule, and why."""

from __future__ import annotations

import ctypes
import sys
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Literal, cast

import torch

from nmt_cli.errors import NmtError

PrecisionName = Literal["fp32", "bf16", "fp16", "int8"]
DeviceChoice = Literal["auto", "cpu", "cuda", "mps"]
PrecisionChoice = Literal["auto", "fp32", "bf16", "fp16"]
TranslationPrecisionChoice = Literal["auto", "fp32", "bf16", "fp16", "int8"]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
"""Numbers of glibc's malloc.h."""
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """The number format of matrix products and of what a layer hands to the next.

    Weights, recurrent state, softmax, the sums within norms, and the loss stay fp32.
    """

    name: PrecisionName
    reason: str
    warning: str | None = None
    """What the user should know when it is not what was asked for."""

    def autocast(self, device: torch.device) -> AbstractContextManager[None]:
        """Give the context in which the model runs."""
        half = _HALF.get(self.name)
        return cast(
            AbstractContextManager[None],
            torch.autocast(device.type, half, enabled=half is not None),
        )


def choose_device(choice: DeviceChoice) -> torch.device:
    """Take the device asked for, or the best there is.

    Raises:
        NmtError: if the one asked for is not there.
    """
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if choice == "auto":
        return torch.device(next(name for name, available in there.items() if available))
    if not there[choice]:
        found = ", ".join(name for name, available in there.items() if available)
        raise NmtError(f"--device {choice}: not available here; there is: {found}")
    return torch.device(choice)


def choose_training_precision(
    choice: PrecisionChoice, device: torch.device, bf16_pays_on_cpu: bool
) -> Precision:
    """Choose the precision of training."""
    if choice == "fp16" and device.type == "cpu":
        return Precision("fp32", "in place of fp16", "fp16 does not train on a CPU: using fp32")
    if choice != "auto":
        return Precision(choice, "as asked")
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Precision("bf16", "this GPU has it")
        return Precision("fp16", "this GPU has no bf16; with loss scaling")
    if device.type == "cpu" and not cpu_has_bf16():
        return Precision("fp32", "this CPU has no native bf16")
    if device.type == "cpu" and bf16_pays_on_cpu:
        return Precision("bf16", "this CPU has it natively, and it was measured to be faster")
    return Precision("fp32", "nothing faster is sure to pay here")


def choose_translation_precision(
    choice: TranslationPrecisionChoice, device: torch.device
) -> Precision:
    """Choose the precision of translating: fp32 on a CPU, so that neighbours do not matter.

    Raises:
        NmtError: if the one asked for is not there on the device.
    """
    if choice == "int8" and device.type != "cpu":
        raise NmtError(f"--precision int8: on a CPU alone; on {device.type} take bf16 or fp16")
    if choice == "fp16" and device.type == "cpu":
        return Precision("fp32", "in place of fp16", "fp16 is slow on a CPU: using fp32")
    if choice != "auto":
        return Precision(choice, "as asked")
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return Precision("bf16", "this GPU has it")
    return Precision("fp32", "a line's translation then does not depend on its neighbours")


def cpu_has_bf16() -> bool:
    """Tell whether this CPU multiplies bf16 by instructions of its own."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in checks)


def use_fast_kernels(device: torch.device) -> None:
    """Allow TF32 products on CUDA; on a CPU, keep freed memory for the next step."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    elif device.type == "cpu":
        keep_freed_memory()


def use_exact_kernels(device: torch.device) -> None:
    """Forbid TF32 on CUDA, so that fp32 is fp32: cuDNN's recurrence would take it by default."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False


def keep_freed_memory() -> None:
    """Stop glibc from giving blocks back to the system when they are freed.

    Each step, of training as of a search, frees and takes the same megabytes again, and the system
    would clear every page of them anew. Large blocks are therefore taken from the heap like small
    ones, not mapped each by itself. Elsewhere than on glibc nothing is done.
    """
    _call_glibc("mallopt", _M_MMAP_MAX, 0)
    _call_glibc("mallopt", _M_TRIM_THRESHOLD, -1)  # never


class Trimmer:
    """Gives the pages of freed memory back to the system, at most every ten seconds.

    A process that translates for hours would otherwise keep what the longest sentences took, and
    ever more beside it, as small blocks that stay come to lie between large ones that are freed.
    """

    def __init__(self, every_s: float = 10.0) -> None:
        self.every_s = every_s
        self._last = time.monotonic()

    def __call__(self) -> None:
        """Give them back, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._last >= self.every_s:
            _call_glibc("malloc_trim", 0)
            self._last = now


trim_at_times = Trimmer()
"""Of this process."""


def give_back_memory(device: torch.device) -> None:
    """Return what is kept for later, as something is to be tried again that found too little."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    _call_glibc("malloc_trim", 0)
    _call_glibc("mallopt", _M_MMAP_MAX, 1 << 16)  # from now on at once, as by default
    _call_glibc("mallopt", _M_MMAP_THRESHOLD, 128 << 10)
    _call_glibc("mallopt", _M_TRIM_THRESHOLD, 128 << 10)


def _call_glibc(name: str, *numbers: int) -> None:
    """Call a function of glibc, where that is the C library and has it."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            getattr(ctypes.CDLL(None), name)(*numbers)
