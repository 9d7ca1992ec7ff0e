"""The benchmark of quality counts as it says it does."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from benchmarks import quality


def test_the_auc_is_mann_whitneys_and_its_interval_covers():
    rng = np.random.default_rng(0)
    truth = 0.7602  # Φ(1 / √2): one standard deviation apart
    inside = 0
    for _ in range(300):
        high, low = rng.normal(1, 1, 60), rng.normal(0, 1, 120)
        value, below, above = quality.auc(high, low)
        inside += below <= truth <= above
    assert value == pytest.approx(mannwhitneyu(high, low).statistic / (60 * 120))
    assert 0.91 <= inside / 300 <= 0.98


def test_pairs_are_of_one_split_and_as_many_of_each_label(tmp_path):
    labels = {"0": ["SUPPORT"], "1": ["CONTRADICT"], "2": [], "3": ["SUPPORT"], "4": []}
    splits = {"3": "train"}
    claims = [
        {"id": name, "text": f"claim {name}", "labels": label, "split": splits.get(name, "test")}
        for name, label in labels.items()
    ]
    abstracts = [{"id": "d", "title": "t", "text": "abstract"}]
    for name, rows in (("queries", claims), ("corpus", abstracts)):
        content = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress(content.encode()))
    judged = "query-id\tcorpus-id\tscore\n" + "".join(f"{name}\td\t1\n" for name in labels)
    (tmp_path / "qrels.tsv").write_text(judged)
    found = quality._pairs(tmp_path, "test", 1)
    assert [label for label, _, _ in found] == ["SUPPORT", "CONTRADICT", "none"]
    assert found[0][1:] == ("claim 0", "abstract")
    every = quality._pairs(tmp_path, "test")
    assert sorted(label for label, _, _ in every) == ["CONTRADICT", "SUPPORT", "none", "none"]


def test_personal_data_are_counted_on_odd_templates_alone(tmp_path):
    def row(template, text, *spans):
        told = [
            {"entity_type": kind, "start_position": start, "end_position": end}
            for kind, start, end in spans
        ]
        return {"full_text": text, "spans": told, "template_id": template}

    rows = [
        row(1, "Ask ann@example.org now", ("EMAIL_ADDRESS", 4, 19)),
        row(3, "Ask ann at example", ("EMAIL_ADDRESS", 4, 18)),
        row(2, "Ask bob@example.org", ("EMAIL_ADDRESS", 4, 19)),
        row(5, "It is 192.0.2.7"),
    ]
    (tmp_path / "synth_dataset_v2.json").write_text(json.dumps(rows))
    found = {one.name: one for one in quality._personal(tmp_path)}
    about = "pii, odd templates (3 sentences)"
    assert {name: one.value for name, one in found.items()} == {
        f"{about}: email, recall of 2": 0.5,
        f"{about}: email, precision of 1": 1.0,
        f"{about}: ip, precision of 1": 0.0,
    }
