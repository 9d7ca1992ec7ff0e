"""A run folder becomes one run of MLflow, with all that it says, and nothing is written twice."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from steersman.errors import DataError, InputError
from steersman.errors.install_hint import how_to_install
from steersman_systems.rag_tuner.mlflow_export import export_run, metrics_of
from steersman_systems.rag_tuner.run_folder import RunFolder

# In a process of its own: the library warns while it is imported, and warnings are errors here.
PROGRAM = """
import json, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from steersman_systems.rag_tuner.mlflow_export import export_run
folder, store = map(Path, sys.argv[1:])
now = datetime.now(UTC)
def export(when=now, **more):
    return export_run(folder, store=store, commit="9e1c3f0", now=when, **more)
first, again = export(), export()
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=first.tracking_uri)
run = client.get_run(first.run)
later = export(now + timedelta(days=91))
print(json.dumps({
    "new": [first.new, again.new], "same": first.run == again.run,
    "experiment": client.get_experiment(run.info.experiment_id).name,
    "parameters": run.data.params, "metrics": run.data.metrics, "tags": run.data.tags,
    "steps": [one.step for one in client.get_metric_history(first.run, "reward")],
    "artifacts": sorted(one.path for one in client.list_artifacts(first.run)),
    "removed": [again.removed, later.removed],
}))
"""
PARTS = {
    "variant": "hybrid", "k": 8, "rerank": True, "fusion_weight": 0.5, "expansion": False,
    "prompt": "plain",
}  # fmt: skip


def line(number, **changes):
    return {
        "number": number, "configuration": PARTS, "measures": ["recall@k", "ndcg@k"],
        "quality": [0.5, None], "reward": 0.1 * number, "latency_p95_ms": 7.0, "cost": 0.5,
        **changes,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    run = tmp_path / "handbook-run"
    manifest = {"collection": "handbook", "seed": 3, "strategy": "factored",
                "recorded": {"sha256": "ab" * 32}}  # fmt: skip
    RunFolder(run).begin(manifest, "format: 1\n")
    (run / "episodes.jsonl").write_text("".join(json.dumps(line(n)) + "\n" for n in (1, 2)))
    (run / "summary.csv").write_text("number\n1\n2\n")
    verdict = {"state": "gain", "candidate": PARTS, "baseline": PARTS, "evaluations": 2}
    (run / "verdict.json").write_text(json.dumps(verdict))
    (run / "predictions.jsonl").write_text("{}\n")
    return run


@pytest.mark.slow
def test_a_run_is_there_once_with_all_that_it_says(folder, tmp_path):
    pytest.importorskip("mlflow", exc_type=ImportError)
    command = [sys.executable, "-c", PROGRAM, str(folder), str(tmp_path / "mlflow")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["new"], told["same"]) == ([True, False], True)
    assert told["experiment"] == "rl_autotuner"
    wanted = {"variant": "hybrid", "k": "8", "rerank": "True", "fusion_weight": "0.5",
              "prompt_id": "plain", "dataset_id": "handbook@abababababab", "seed": "3"}  # fmt: skip
    assert wanted.items() <= told["parameters"].items()
    assert told["metrics"] == {
        "recall_at_k": 0.5, "reward": 0.2, "p95_latency": 7.0, "cost": 0.5
    }  # fmt: skip
    assert told["steps"] == [1, 2]
    assert told["tags"]["mlflow.source.git.commit"] == "9e1c3f0"
    assert told["artifacts"] == [
        "commit.txt", "episodes.jsonl", "manifest.json", "policy.yaml", "predictions.jsonl",
        "summary.csv", "verdict.json",
    ]  # fmt: skip
    assert told["removed"] == [0, 1]


def test_measures_of_answers_and_money_keep_their_own_names():
    paid = line(1, measures=["faithfulness", "relevancy"], quality=[0.8, 0.9], cost=0.01)
    assert metrics_of(paid) == {
        "faithfulness": 0.8, "relevancy": 0.9, "reward": 0.1, "p95_latency": 7.0, "cost_usd": 0.01
    }  # fmt: skip


def test_what_was_not_judged_is_not_exported(folder, tmp_path):
    given = {"store": tmp_path, "commit": "x", "now": datetime(2026, 11, 21, tzinfo=UTC)}
    with pytest.raises(InputError, match="keep_days is 0"):
        export_run(folder, keep_days=0, **given)
    (folder / "verdict.json").unlink()
    with pytest.raises(DataError, match="has no verdict; run `steersman tune run`"):
        export_run(folder, **given)


def test_a_missing_extra_is_named(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", None)
    now = datetime(2026, 11, 21, tzinfo=UTC)
    with pytest.raises(DataError, match=re.escape(how_to_install("mlflow"))):
        export_run(folder, store=tmp_path, commit="x", now=now)
