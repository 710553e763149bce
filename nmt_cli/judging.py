"""Which runs and which test set a command is to judge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nmt_cli.errors import NmtError

if TYPE_CHECKING:
    from nmt_cli.config import DataConfig
    from nmt_cli.corpus.pairs import PairList, Request
    from nmt_cli.runs import RunFolder


def named_run(word: str) -> tuple[str, list[RunFolder]]:
    """Read RUN, NAME=RUN or NAME=RUN,RUN,RUN; the runs of one name may differ by seed alone."""
    from nmt_cli.runs import RunFolder

    name, equals, paths = word.partition("=")
    if not equals or Path(word).exists():
        if "," in word and not Path(word).exists():
            raise NmtError(
                f"{word}: no such folder; the mean of several runs has a name: NAME={word}"
            )
        folder = RunFolder(Path(word))
        folder.config()
        return folder.name, [folder]
    parts = [paths] if Path(paths).exists() else paths.split(",")
    folders = [RunFolder(Path(part)) for part in parts]
    if len({folder.path.resolve() for folder in folders}) < len(folders):
        raise NmtError(f"{word}: names a run twice; the mean of seeds is over different runs")
    first = folders[0].config()
    for folder in folders[1:]:
        for key in ("arch", "options", "tokenizer", "data_hash"):
            if folder.config()[key] != first[key]:
                raise NmtError(
                    f"{folder.path}: its {key} is not that of {folders[0].path}; runs of one "
                    "system may differ by seed alone"
                )
    return name, folders


def pairs_to_judge(
    runs: list[RunFolder],
    data: str | None,
    split: str | None,
    src: Path | None,
    ref: Path | None,
    request: Request,
) -> PairList:
    """Read the pairs asked for, or else the test split that the runs recorded.

    Raises:
        NmtError: if what is asked for contradicts itself or cannot be read.
    """
    from nmt_cli.corpus.splits import load_one

    if (src is None) != (ref is None):
        raise NmtError("--src and --ref go together: line n of one translates line n of the other")
    if src is not None and ref is not None:
        if data is not None:
            raise NmtError("give either --data or --src and --ref")
        if split is not None or request.columns is not None:
            raise NmtError(
                "--split and --columns choose from --data; --src and --ref are whole files"
            )
        return _pair_files(src, ref, _with_languages(request, runs))
    if data is not None:
        filled = _with_languages(request, runs)
        return load_one(data, filled, (split or "test",), by_name=split is not None)
    if not runs:
        raise NmtError("--hyp needs its test set: give --src and --ref, or --data")
    _require_unasked(request, runs[0])
    return _recorded_test(runs, split)


def _require_unasked(request: Request, run: RunFolder) -> None:
    """Refuse languages or columns for a test that its run recorded, where they change nothing."""
    config = run.config()
    for option, given, recorded in (
        ("-s", request.src_lang, config["src_lang"]),
        ("-t", request.tgt_lang, config["tgt_lang"]),
        ("--columns", request.columns and ",".join(request.columns), None),
    ):
        if given is not None and given != recorded:
            raise NmtError(
                f"{option} {given}: the test of {run.path} is as it was recorded, "
                f"{config['src_lang']} into {config['tgt_lang']}; name another by --data"
            )


def judged_files(
    runs: list[RunFolder], data: str | None, src: Path | None, ref: Path | None
) -> list[Path]:
    """List the files of the pairs asked for and of the runs, which no output may replace."""
    from nmt_cli.corpus.readers import files_of

    files = [path for path in (src, ref) if path] + (files_of(data) if data else [])
    return [*files, *(file for run in runs for file in run.files())]


def _with_languages(request: Request, runs: list[RunFolder]) -> Request:
    from nmt_cli.corpus.pairs import Request

    if not runs:
        return request
    config = runs[0].config()
    if (request.src_lang, request.tgt_lang) == (config["tgt_lang"], config["src_lang"]):
        raise NmtError(
            f"{runs[0].path}: translates {config['src_lang']} into {config['tgt_lang']}, not "
            f"{request.src_lang} into {request.tgt_lang}"
        )
    return Request(
        request.src_lang or config["src_lang"],
        request.tgt_lang or config["tgt_lang"],
        request.columns,
        request.errors,
    )


def _pair_files(src: Path, ref: Path, request: Request) -> PairList:
    from nmt_cli.corpus.pairs import Request
    from nmt_cli.corpus.readers import language_of, read_pair_files

    src_lang = request.src_lang or language_of(src)
    tgt_lang = request.tgt_lang or language_of(ref)
    if src_lang is None and tgt_lang is None:
        raise NmtError(
            f"{ref}: its language is not known, by which BLEU cuts text; give -t, as -t de"
        )
    known = Request(src_lang or "und", tgt_lang or "und", None, request.errors)
    return read_pair_files(src, ref, known).read()


def _recorded_test(runs: list[RunFolder], split: str | None) -> PairList:
    """Read the test split that the runs recorded, which must be one and the same."""
    from nmt_cli.config import Config
    from nmt_cli.corpus.splits import load_one, load_splits

    configs = [
        Config.from_json(run.config()["request"], str(run.path / "config.json")) for run in runs
    ]
    names = [c.data.test or f"test of {c.data.spec}" for c in configs]
    tests = {
        (run.config()["src_lang"], run.config().get("test_hash") or name)
        for run, name in zip(runs, names, strict=True)
    }
    if len(tests) > 1:
        raise NmtError(
            f"these runs were tested on different data ({', '.join(sorted(set(names)))}); "
            "say on which to compare them, with -d"
        )
    data = replace(configs[0].data, cache=None)  # where files are written is not for a run to say
    if split in {None, "test"}:
        return _as_it_was_tested(runs[0], data)
    splits = load_splits(data.spec, data.valid, data.test, data.request(), data.spool().collect)
    if split in {"valid", "val", "dev"}:
        return splits.valid
    if split == "train":
        return splits.train
    return load_one(data.spec, data.request(), (str(split),), by_name=True)


def _as_it_was_tested(run: RunFolder, data: DataConfig) -> PairList:
    """Read what a run was tested on, and say so if it is not that any more."""
    from nmt_cli.corpus.preflight import digest, fingerprints_of, preflight
    from nmt_cli.corpus.splits import load_own_test, load_splits

    config = run.config()
    request = replace(data.request(), src_lang=config["src_lang"], tgt_lang=config["tgt_lang"])
    test, own = load_own_test(data.spec, data.test, request), True
    if test is None:
        splits = load_splits(data.spec, data.valid, None, data.request(), data.spool().collect)
        if splits.test.pairs is splits.train.pairs:  # of which training took what it could use
            splits = preflight(splits, data.limits())[0]
        test = splits.test
        own = False
    recorded = config.get("test_hash")
    if recorded is None or recorded == digest(fingerprints_of(test.pairs)):
        return test
    if not own:  # pairs for training may be among them
        raise NmtError(
            f"{test.name}: is not what {run.path} was tested on, as {data.spec} has changed; name "
            "a test by -d"
        )
    changed = f"warning: {test.name}: has changed since {run.path} was tested on it"
    return test._replace(notes=(*test.notes, changed))
