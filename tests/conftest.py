import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nmt_cli import cli

PAIRS = [
    ("The ferry is late.", "Le bac est en retard."),
    ("My neighbour grows beans.", "Mon voisin cultive des haricots."),
    ("We painted the shed.", "Nous avons peint la remise."),
    ("She keeps a spare key.", "Elle garde une clé de secours."),
    ("Nobody read the letter.", "Personne n'a lu la lettre."),
    ("The baker opens at six.", "Le boulanger ouvre à six heures."),
    ("It rained all week.", "Il a plu toute la semaine."),
    ("He sold his old boat.", "Il a vendu son vieux bateau."),
    ("The children found a map.", "Les enfants ont trouvé une carte."),
    ("Our train leaves soon.", "Notre train part bientôt."),
    ("I forgot the candles.", "J'ai oublié les bougies."),
    ("They planted two apple trees.", "Ils ont planté deux pommiers."),
]


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def cases() -> Path | None:
    """Folder of inputs that broke other tools, where it is beside the project."""
    folder = Path(__file__).parents[2] / "shared" / "cases"
    return folder if folder.is_dir() else None


def write_pairs(folder: Path, pairs=PAIRS, name: str = "pairs", languages=("en", "fr")) -> Path:
    """Write pairs as ``name.en`` and ``name.fr``; give the prefix."""
    folder.mkdir(parents=True, exist_ok=True)
    for side, language in enumerate(languages):
        text = "".join(pair[side] + "\n" for pair in pairs)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8", newline="\n")
    return folder / name


def nmt(
    *args: object,
    cwd: Path,
    stdin: bytes | str | None = None,
    env: dict[str, str] | None = None,
    timeout: float = 300,
) -> subprocess.CompletedProcess[bytes]:
    """Run the installed ``nmt``; standard streams as bytes."""
    program = Path(sys.executable).with_name("nmt")
    data = stdin.encode() if isinstance(stdin, str) else stdin
    return subprocess.run(
        [str(program), *map(str, args)],
        cwd=cwd,
        input=data if data is not None else b"",
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        timeout=timeout,
        check=False,
    )


def text(result: subprocess.CompletedProcess[bytes]) -> str:
    """Check that a run succeeded; give what it printed."""
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def expect_error(result: subprocess.CompletedProcess[bytes], code: int, *mentions: str) -> str:
    """Check that a run ended in one error line with these words; give the line."""
    stderr = result.stderr.decode()
    assert result.returncode == code, stderr
    assert "Traceback" not in stderr
    lines = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, stderr
    for mention in mentions:
        assert mention in lines[0], lines[0]
    return lines[0]


@pytest.fixture
def fails(tmp_path, monkeypatch, capsys):
    """Run ``nmt`` in this process, in a folder of its own, and check that it fails well."""
    write_pairs(tmp_path)
    (tmp_path / "a.tsv").write_text("one\tun\n")
    monkeypatch.chdir(tmp_path)

    def run(*args: object, mentions: list[str], code: int = 2) -> None:
        monkeypatch.setattr(sys, "argv", ["nmt", *map(str, args)])
        assert cli.run() == code
        lines = capsys.readouterr().err.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        assert len(errors) == 1 and "Traceback" not in "".join(lines), lines
        assert all(mention in errors[0] for mention in mentions), errors[0]

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A small attentional run that knows ``PAIRS`` by heart, in a folder with its data."""
    folder = tmp_path_factory.mktemp("trained")
    write_pairs(folder)
    result = nmt(
        *("train", "-a", "lstm-attn", "-d", "pairs", "-s", "en", "-t", "fr", "-o", "checkpoints/M"),
        *("--steps", 200, "--size", "tiny", "--lr", "5e-3", "--dropout", 0),
        cwd=folder,
    )
    assert result.returncode == 0, result.stderr.decode()
    return folder / "checkpoints" / "M"
