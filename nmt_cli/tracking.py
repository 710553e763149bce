"""A run as trackers of experiments show it: curves, what the model writes, at what it attends."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from nmt_cli.errors import NmtError
from nmt_cli.events import Step, Stopped, Validated
from nmt_cli.experiment import Evaluated, Prepared, RunEvent
from nmt_cli.files import write_whole
from nmt_cli.plots import attention_png, length_curve_png
from nmt_cli.validation import Sampled

PROJECT = "nmt"
"""The name under which hosted trackers gather runs."""


class Sink(Protocol):
    """Where figures, texts and pictures of a run go; steps never decrease."""

    def begin(self, step: int) -> None:
        """Open what the steps after this one go to."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to curves."""

    def text(self, name: str, markdown: str, step: int) -> None:
        """Show a text."""

    def picture(self, name: str, png: bytes, step: int) -> None:
        """Show a picture."""

    def flush(self) -> None:
        """Make sure that nothing is lost if the process ends now."""

    def end(self) -> None:
        """Close it."""


class Tracker:
    """Tells a sink of the events of a run."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._step = 0

    def take(self, event: RunEvent) -> None:
        """Pass on one event, if it is of those that are shown."""
        sink = self._sink
        if isinstance(event, Step | Validated) and event.step < self._step:
            return  # rolled back: a curve is not drawn twice
        if isinstance(event, Prepared):
            self._step = event.step
            sink.begin(event.step)
        elif isinstance(event, Step):
            self._step = event.step
            names = ("loss", "lr", "tokens_per_s")
            sink.scalars({f"train/{name}": getattr(event, name) for name in names}, event.step)
        elif isinstance(event, Validated):
            score = {f"valid/{name}": getattr(event.score, name) for name in ("bleu", "loss")}
            sink.scalars(score, event.step)
        elif isinstance(event, Sampled):
            self._sample(event)
        elif isinstance(event, Stopped):
            sink.flush()  # the last to come, if training was interrupted
        elif isinstance(event, Evaluated):
            overall = event.report.systems[0].overall
            if overall.bleu is not None:
                sink.scalars({"test/bleu": overall.bleu}, self._step)
            curve = length_curve_png(event.report)
            sink.picture("test/bleu by source length", curve, self._step)
            sink.end()

    def _sample(self, event: Sampled) -> None:
        rows = (
            ("source", event.source),
            ("reference", event.reference),
            ("now", event.translation),
        )
        table = "\n".join(f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in rows)
        self._sink.text(f"samples/{event.number}", f"| | |\n|---|---|\n{table}", self._step)
        if event.attention is not None:
            picture = attention_png(event.attention)
            self._sink.picture(f"attention/{event.number}", picture, self._step)


class TensorBoard:
    """A folder of its own below ``RUN/tensorboard``.

    A run that is resumed goes on in the folder where it was; what it had logged past its state is
    taken back.
    """

    def __init__(self, run: Path, resumed: bool) -> None:
        """Choose the folder.

        Raises:
            NmtError: if the package is not installed.
        """
        _package("--tensorboard", "tensorboard")
        root = run / "tensorboard"
        before = sorted(path for path in root.glob("*") if path.is_dir()) if resumed else []
        now = datetime.now().strftime("%Y-%m-%dT%H-%M-%S")  # read by people here
        self._folder = before[-1] if before else root / now

    def begin(self, step: int) -> None:
        """Open the file of events."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(self._folder), purge_step=step + 1)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to curves."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def text(self, name: str, markdown: str, step: int) -> None:
        """Show a text."""
        self._writer.add_text(name, markdown, step)

    def picture(self, name: str, png: bytes, step: int) -> None:
        """Show a picture."""
        import numpy as np

        self._writer.add_image(name, np.asarray(_image(png)), step, dataformats="HWC")

    def flush(self) -> None:
        """Write what is in memory."""
        self._writer.flush()

    def end(self) -> None:
        """Close the file."""
        self._writer.close()


class Hosted:
    """Weights & Biases, or Trackio, which has the same functions."""

    def __init__(self, name: str, run: Path, options: Mapping[str, Any], resumed: bool) -> None:
        """Find the package.

        Raises:
            NmtError: if it is not installed.
        """
        self._module = _package(f"--tracker {name}", name)
        self._name, self._run, self._options, self._resumed = name, run, options, resumed

    def begin(self, step: int) -> None:
        """Open the run, the one of before if it was resumed."""
        known = {"id": _identity(self._run, self._resumed)} if self._name == "wandb" else {}
        self._module.init(
            project=PROJECT,
            name=self._run.name,
            config=dict(self._options),
            resume="allow" if self._resumed else "never",
            **known,
        )

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to curves."""
        self._module.log(dict(values), step=step)

    def text(self, name: str, markdown: str, step: int) -> None:
        """Show a text."""
        import html

        if self._name == "wandb":
            shown = self._module.Html(f"<pre>{html.escape(markdown)}</pre>")
        else:
            shown = self._module.Markdown(markdown)
        self._module.log({name: shown}, step=step)

    def picture(self, name: str, png: bytes, step: int) -> None:
        """Show a picture."""
        self._module.log({name: self._module.Image(_image(png))}, step=step)

    def flush(self) -> None:
        """Leave it to the package, which sends as it goes."""

    def end(self) -> None:
        """Wait until all is sent."""
        self._module.finish()


class MLflow:
    """A run of MLflow, where its own settings say that runs are kept."""

    def __init__(self, run: Path, options: Mapping[str, Any], resumed: bool) -> None:
        """Find the package.

        Raises:
            NmtError: if it is not installed.
        """
        self._module = _package("--tracker mlflow", "mlflow")
        self._run, self._options, self._resumed = run, options, resumed

    def begin(self, step: int) -> None:
        """Open the run, the one of before if it was resumed."""
        kept = self._run / "mlflow.id"
        before = kept.read_text() if self._resumed and kept.is_file() else None
        self._module.set_experiment(PROJECT)
        if before:
            self._module.start_run(run_id=before)
            return
        opened = self._module.start_run(run_name=self._run.name)
        write_whole(kept, opened.info.run_id.encode())
        self._module.log_params({name: str(value) for name, value in self._options.items()})

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to curves."""
        self._module.log_metrics(dict(values), step=step)

    def text(self, name: str, markdown: str, step: int) -> None:
        """Keep a text as an artifact."""
        self._module.log_text(markdown, f"{name}/step-{step:07}.md")

    def picture(self, name: str, png: bytes, step: int) -> None:
        """Keep a picture as an artifact."""
        self._module.log_image(_image(png), f"{name.replace(' ', '-')}/step-{step:07}.png")

    def flush(self) -> None:
        """Leave it to the package, which writes as it goes."""

    def end(self) -> None:
        """Mark the run as finished."""
        self._module.end_run()


TRACKERS: dict[str, Callable[[Path, Mapping[str, Any], bool], Sink]] = {
    "wandb": lambda run, options, resumed: Hosted("wandb", run, options, resumed),
    "trackio": lambda run, options, resumed: Hosted("trackio", run, options, resumed),
    "mlflow": MLflow,
}
"""What ``--tracker`` takes: makes the sink of a run folder, its options and whether it goes on."""


def _package(option: str, name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise NmtError(f"{option}: needs its package: pip install {name}") from None


def _identity(run: Path, resumed: bool) -> str:
    """Give the name by which Weights & Biases knows the run again, kept in the run folder."""
    kept = run / "wandb.id"
    if resumed and kept.is_file():
        return kept.read_text()
    made = uuid.uuid4().hex[:16]
    write_whole(kept, made.encode())
    return made


def _image(png: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(png)).convert("RGB")
