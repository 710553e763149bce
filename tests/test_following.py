"""What a run says on the screen."""

import signal

import pytest

from nmt_cli.commands.following import follow
from nmt_cli.corpus.pairs import Pair, PairList
from nmt_cli.display import Bar, Screen
from nmt_cli.evaluation import SystemOutput, evaluate, make_sample
from nmt_cli.events import Stopped
from nmt_cli.experiment import Evaluated, Prepared
from nmt_cli.metrics import Bleu


@pytest.fixture
def handlers():
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit(143)])
def test_who_stops_the_final_test_is_told_how_to_make_it_up(tmp_path, capsys, handlers, ending):
    def events(watcher):
        yield Prepared(1, 1, 0)
        yield Stopped(1, "the last step (1) is reached", False)
        raise ending

    with pytest.raises((KeyboardInterrupt, SystemExit)):
        follow(events, tmp_path / "R", Screen())
    assert f"nmt train --resume {tmp_path / 'R'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("example", "typed"),
    [(None, "'A sentence.'"), ("Don't!", """'Don'"'"'t!'"""), ("hi", "hi")],
)
def test_what_is_proposed_next_can_be_pasted(tmp_path, capsys, handlers, example, typed):
    pairs = PairList("t", "en", "fr", [Pair("a b", "c d e f")])
    report = evaluate(make_sample(pairs), [SystemOutput("one", [["c"]], None)], Bleu("13a"))
    follow(lambda watcher: iter([Evaluated(report, example)]), tmp_path / "my run", Screen())
    folder = tmp_path / "my run"
    assert f"next: echo {typed} | nmt translate -m '{folder}'\n" in capsys.readouterr().err


def test_lines_of_progress_come_ever_more_rarely(capsys, monkeypatch):
    clock = iter(range(0, 20_000))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    bar = Bar(Screen(), "working", None, None)
    for _ in range(9000):
        bar.advance()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("working 10")
    first, second, last = (int(line.split()[1]) for line in (lines[0], lines[1], lines[-1]))
    assert second - first == 10
    assert 9000 - last < 200 and len(lines) < 400
