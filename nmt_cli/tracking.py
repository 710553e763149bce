"""A run as TensorBoard shows it: curves, what the model writes by now, and at what it attends."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from nmt_cli.errors import NmtError
from nmt_cli.experiment import Evaluated, Prepared, RunEvent, Sampled
from nmt_cli.plots import attention_png, length_curve_png
from nmt_cli.training import Step, Stopped, Validated

_FOLDER = "tensorboard"


class TensorBoard:
    """Writes the events of a run into a folder of its own below ``RUN/tensorboard``.

    A run that is resumed goes on in the folder where it was; what it had logged past its state is
    taken back.
    """

    def __init__(self, run: Path, resumed: bool) -> None:
        """Choose the folder.

        Raises:
            NmtError: if the package is not installed.
        """
        try:
            import tensorboard  # noqa: F401
        except ImportError:
            raise NmtError("--tensorboard: needs its package: pip install tensorboard") from None
        root = run / _FOLDER
        before = sorted(path for path in root.glob("*") if path.is_dir()) if resumed else []
        now = datetime.now().strftime("%Y-%m-%dT%H-%M-%S")  # read by people here
        self._folder = before[-1] if before else root / now
        self._step = 0

    def take(self, event: RunEvent) -> None:
        """Write one event, if it is of those that are shown."""
        if isinstance(event, Prepared):
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=event.step + 1)
        elif isinstance(event, Step):
            self._step = event.step
            for name in ("loss", "lr", "tokens_per_s"):
                self._writer.add_scalar(f"train/{name}", getattr(event, name), event.step)
        elif isinstance(event, Validated):
            for name in ("bleu", "loss"):
                self._writer.add_scalar(f"valid/{name}", getattr(event.score, name), event.step)
        elif isinstance(event, Sampled):
            self._sample(event)
        elif isinstance(event, Stopped):
            self._writer.flush()  # the last to come, if training was interrupted
        elif isinstance(event, Evaluated):
            overall = event.report.systems[0].overall
            if overall.bleu is not None:
                self._writer.add_scalar("test/bleu", overall.bleu, self._step)
            self._picture("test/bleu by source length", length_curve_png(event.report))
            self._writer.close()

    def _sample(self, event: Sampled) -> None:
        rows = (
            ("source", event.source),
            ("reference", event.reference),
            ("now", event.translation),
        )
        table = "\n".join(f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in rows)
        name = f"samples/{event.number}"
        self._writer.add_text(name, f"| | |\n|---|---|\n{table}", self._step)
        if event.attention is not None:
            self._picture(f"attention/{event.number}", attention_png(event.attention))

    def _picture(self, name: str, png: bytes) -> None:
        import io

        import numpy as np
        from PIL import Image

        pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
        self._writer.add_image(name, pixels, self._step, dataformats="HWC")
