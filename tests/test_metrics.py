import json
import math

import numpy as np
import pytest
import sacrebleu

from nmt_cli.display import report_table
from nmt_cli.errors import NmtError
from nmt_cli.evaluation import Sample, SystemOutput, evaluate
from nmt_cli.metrics import (
    Bleu,
    Bucket,
    bleu_tokenizer,
    bucket_index,
    buckets_of,
    compare,
    exact,
    interval,
    length_unit,
    quantile_edges,
    resamples,
    text_lengths,
)

REFERENCES = [f"the {a} man sees a {b} dog in the big park" for a in "abc" for b in "xyzw"]
HYPOTHESES = [line.replace("x dog", "x cat").replace("big", "large") for line in REFERENCES]
RUNS = HYPOTHESES, [line.replace("sees", "seems") for line in REFERENCES]


def sample(references, lengths=None, edges=(10, 20)):
    lengths = lengths or [len(line.split()) for line in references]
    return Sample("data", ["s"] * len(references), references, lengths, "word", buckets_of(edges))


def test_summed_statistics_give_sacrebleus_corpus_score():
    bleu = Bleu("13a")
    ours = bleu.score(bleu.statistics(HYPOTHESES, REFERENCES).sum(0))
    theirs = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES])
    assert ours == pytest.approx(theirs.score, abs=1e-9)


def test_bleu_of_a_case_computed_by_hand():
    # 5 words for 5; matches 4/5, 2/4, 1/3 and none of 2 4-grams, smoothed to 1 / (2 * 2)
    bleu = Bleu("none")
    ours = bleu.score(bleu.statistics(["a b c x e"], ["a b c d e"]).sum(0))
    assert ours == pytest.approx(100 * (4 / 5 * 2 / 4 * 1 / 3 * 1 / 4) ** 0.25)


def test_brevity_penalty_by_hand():
    bleu = Bleu("none")
    ours = bleu.score(bleu.statistics(["a b c d"], ["a b c d e f"]).sum(0))
    assert ours == pytest.approx(100 * math.exp(1 - 6 / 4))


def test_both_sides_are_composed_and_the_signature_says_so():
    bleu = Bleu("13a")
    rows = bleu.statistics(["Le cafe\u0301 est tre\u0300s bon ici."], ["Le café est très bon ici."])
    assert bleu.score(rows.sum(0)) == pytest.approx(100)
    assert bleu.signature.endswith("norm:nfc")
    assert "case:lc" in Bleu("13a", lowercase=True).signature


def test_buckets():
    buckets = buckets_of([10, 20])
    assert buckets == [Bucket(1, 10), Bucket(11, 20), Bucket(21, None)]
    assert [bucket_index(n, buckets) for n in (0, 1, 10, 11, 20, 21, 999)] == [0, 0, 0, 1, 1, 2, 2]
    assert [bucket.label for bucket in buckets] == ["1-10", "11-20", "21+"]


@pytest.mark.parametrize("edges", [[], [0, 5], [10, 10], [20, 10]])
def test_edges_that_do_not_rise_are_refused(edges):
    with pytest.raises(NmtError, match="rising numbers"):
        buckets_of(edges)


def test_quantiles_hold_about_as_many_each():
    lengths = list(range(1, 101))
    assert quantile_edges(lengths, 4) == [25, 50, 75]
    assert quantile_edges([7] * 10, 4) == [7]


def test_length_units():
    assert {length_unit(code) for code in ("zh-CN", "zho_Hans", "cmn", "jpn", "tha")} == {"char"}
    assert length_unit("en") == "word"
    assert text_lengths(["a b  c", ""], "word") == [3, 0]
    assert text_lengths(["我 爱你"], "char") == [3]


def test_tokenizers_by_language():
    assert {bleu_tokenizer(code)[0] for code in ("zh_TW", "zho_Hant", "chi")} == {"zh"}
    assert bleu_tokenizer("de") == ("13a", None)
    name, warning = bleu_tokenizer("th")
    assert name == "char" and warning


def test_bootstrap_samples_are_with_replacement_and_fixed():
    draws = resamples(9)
    assert (draws.sum(1) == 9).all()
    assert (draws == resamples(9)).all()
    assert (draws > 1).any()


def test_the_interval_of_a_mean_is_that_of_the_normal_law():
    values = np.random.default_rng(0).normal(size=400)
    low, high = interval(resamples(400) @ values / 400)
    expected = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - expected, abs=0.02)
    assert high == pytest.approx(values.mean() + expected, abs=0.02)


def test_the_paired_test_tells_a_real_difference_from_chance():
    rng = np.random.default_rng(1)
    draws = resamples(300)
    base = rng.normal(size=300)
    same = base + rng.normal(scale=0.5, size=300)
    better = base + 1 + rng.normal(scale=0.5, size=300)
    for values, real in ((same - same.mean() + base.mean(), False), (better, True)):
        result = compare(draws @ values / 300, draws @ base / 300, values.mean() - base.mean())
        assert (result.p < 0.01) == real


def test_a_system_does_not_differ_from_itself():
    systems = [SystemOutput("one", [HYPOTHESES], None), SystemOutput("two", [HYPOTHESES], None)]
    report = evaluate(sample(REFERENCES), systems, Bleu("13a"))
    comparison = report.systems[1].overall.comparison
    assert comparison.difference == 0
    assert comparison.p == 1


def test_a_bucket_score_is_that_of_its_sentences_alone():
    lengths = [5, 15, 25] * 4
    one = SystemOutput("one", [HYPOTHESES], None)
    report = evaluate(sample(REFERENCES, lengths), [one], Bleu("13a"), ["chrf", "chrf++", "ter"])
    for n, cell in enumerate(report.systems[0].cells):
        own = (HYPOTHESES[n::3], [REFERENCES[n::3]])
        assert cell.bleu == pytest.approx(sacrebleu.corpus_bleu(*own).score, abs=1e-9)
        others = {
            "chrf": sacrebleu.corpus_chrf(*own).score,
            "chrf++": sacrebleu.corpus_chrf(*own, word_order=2).score,
            "ter": sacrebleu.corpus_ter(*own).score,
        }
        assert cell.others == pytest.approx(others, abs=1e-9)
        assert cell.sentences == 4


def test_references_too_short_for_a_4gram_have_no_score_but_a_note():
    report = evaluate(
        sample(["Oui.", "Merci bien."], [1, 2]),
        [SystemOutput("one", [["Oui.", "Merci bien."]], None)],
        Bleu("13a"),
    )
    cell = report.systems[0].cells[0]
    assert cell.bleu is None
    assert "too short for a 4-gram" in cell.note
    assert report.as_json()["systems"][0]["buckets"][0]["bleu"] is None
    assert "n/a" in report_table(report)


def test_the_json_has_the_fields_of_the_contract():
    systems = [SystemOutput("one", [HYPOTHESES], 1.5), SystemOutput("two", [REFERENCES], None)]
    form = json.loads(json.dumps(evaluate(sample(REFERENCES), systems, Bleu("13a")).as_json()))
    assert list(form) == ["data", "split", "unit", "edges", "systems"]
    assert form["edges"] == [10, 20]
    one, two = form["systems"]
    for field in ("name", "bleu", "bleu_low", "bleu_high", "chrf", "signature", "sentences",
                  "length_ratio", "seconds", "difference", "p", "buckets"):  # fmt: skip
        assert field in one
    assert one["difference"] is None and one["p"] is None and two["seconds"] is None
    assert two["difference"] > 0
    assert [bucket["high"] for bucket in one["buckets"]] == [10, 20, None]
    assert one["bleu_low"] <= one["bleu"] <= one["bleu_high"]


def test_another_number_of_lines_is_an_error():
    with pytest.raises(NmtError, match="one: 11 lines, but there are 12 references"):
        evaluate(sample(REFERENCES), [SystemOutput("one", [HYPOTHESES[1:]], None)], Bleu("13a"))


def test_exact_matches():
    assert exact(["a", "b", "e\u0301"], ["a", "x", "é"]) == pytest.approx(200 / 3)


def test_a_system_of_several_runs_is_their_mean():
    one, two = (SystemOutput(name, [run], None) for name, run in zip("ab", RUNS, strict=True))
    both = SystemOutput("c", list(RUNS), None)
    report = evaluate(sample(REFERENCES), [one, two, both], Bleu("13a"), ("chrf",))
    first, second, mean = (system.overall for system in report.systems)
    assert first.bleu != second.bleu
    assert mean.runs == (first.bleu, second.bleu)
    assert mean.bleu == pytest.approx((first.bleu + second.bleu) / 2)
    assert mean.spread == pytest.approx(abs(first.bleu - second.bleu) / 2**0.5)
    assert mean.others["chrf"] == pytest.approx((first.others["chrf"] + second.others["chrf"]) / 2)
    assert mean.comparison.difference == pytest.approx((second.bleu - first.bleu) / 2)
    assert mean.as_json()["bleu_runs"] == [first.bleu, second.bleu]
    assert first.spread is None and "bleu_runs" not in first.as_json()
