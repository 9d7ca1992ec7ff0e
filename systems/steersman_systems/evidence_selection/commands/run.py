"""Execution of `steersman evidence evaluate`: sets, policies and reports."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from steersman.db.judge_cache import JudgeCache
from steersman.errors import DataError, InputError
from steersman.platform.wheel_files import state_directory
from steersman.providers.chat import ChatBackend
from steersman.providers.judges.faithfulness import Faithfulness
from steersman.providers.judges.judge import Judge
from steersman.providers.small_models import CHATTING, READING, local_model, reading_model
from steersman.providers.spending_limit import Budget
from steersman.retrieval.dense import MiniLM
from steersman.retrieval.embedding_cache import CachedEmbedder
from steersman.retrieval.rerank import CosineReranker, CrossEncoder
from steersman_systems.evidence_selection.ablations import ablations
from steersman_systems.evidence_selection.answer_model import Answerer
from steersman_systems.evidence_selection.answer_stability import AnswerStability, StopWhenStable
from steersman_systems.evidence_selection.commands.progress import ProgressReport
from steersman_systems.evidence_selection.contenders import BASELINE, CLONE, contenders
from steersman_systems.evidence_selection.environment import Limits
from steersman_systems.evidence_selection.evaluate import evaluate
from steersman_systems.evidence_selection.form_trial import compare_forms, tabulate
from steersman_systems.evidence_selection.page import number, write_page
from steersman_systems.evidence_selection.prepared_set import prepare
from steersman_systems.evidence_selection.report import facts, figures, set_report
from steersman_systems.evidence_selection.run_log import EXPERIMENT, export_evaluation, write_log
from steersman_systems.evidence_selection.shared_models import SharedTraining
from steersman_systems.reports.mlflow_runs import Destination, code_commit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from steersman.retrieval.dense import Embedder
    from steersman.retrieval.rerank import Reranker
    from steersman_systems.evidence_selection.ablations import AblationResult
    from steersman_systems.evidence_selection.evaluate import Contender
    from steersman_systems.evidence_selection.form_trial import FormComparison
    from steersman_systems.evidence_selection.paired import Estimate
    from steersman_systems.evidence_selection.prepared_set import Prepared
    from steersman_systems.evidence_selection.report import SetReport

_SHOWN = ("all_gold", "recall", "ndcg", "holds_answer", "f1", "attributed", "unanswered",
          "redundancy", "tokens", "latency_ms")  # fmt: skip
_KEY = "STEERSMAN_LLM_KEY"
_OPTIONS = {"at_most": "passages", "words_alone": "words", "ray_address": "ray", "uri": "mlflow"}
"""Argument -> option name, if different."""


@dataclass
class EvaluationOutput:
    """Results of an evaluation.

    Attributes:
        facts: for programs.
        tables: (rows, columns) for people.
        told: lines for people.
        missing: absent sets, with the reason.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    tables: list[tuple[list[dict[str, Any]], tuple[str, ...]]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def evaluated(
    *, quiet: bool, names: str, page: Path | None, log: Path | None, **asked: Any
) -> EvaluationOutput:
    """Evaluate policies on the sets in `names`, comma-separated.

    Raises:
        DataError: no set exists, an extra is missing, or a file cannot be written.
    """
    for file in filter(None, (page, log)):
        _check_writable(file)
    done = EvaluationOutput()
    reports: list[SetReport] = []
    with ExitStack() as stack:
        judge = asked_model(stack, asked, told=_told(asked))
        # Refuses unknown policies before the work starts.
        _taking_part(asked, judge, SharedTraining())
        telling = stack.enter_context(ProgressReport(quiet=quiet))
        embedder = opened_embedder(
            stack, asked["home"], words_alone=asked["words_alone"], telling=telling
        )
        for name in dict.fromkeys(filter(None, map(str.strip, names.split(",")))):
            try:
                reports.append(_measured(name, embedder, judge, asked, telling))
            except (DataError, InputError) as absent:  # the other sets are still evaluated
                done.missing.append(f"{name}: {absent}")
    if not reports:
        raise DataError("; ".join(done.missing) or "no set given; name one with --sets")
    about = {"sets": names} | {
        _OPTIONS.get(one, one.replace("_", "-")): str(value)
        for one, value in asked.items() if value or one == "seed"
    }  # fmt: skip
    if page is not None:
        write_page(page, reports, about, missing=done.missing)
        done.told.append(f"report: {page}")
    if log is not None:
        write_log(log, about, [one.evaluation for one in reports], figures(reports))
        done.told.append(f"log: {log}")
    if asked["uri"]:
        files = [one for one in (page, log) if one is not None]
        written = export_evaluation(_destination(asked), about, figures(reports), files)
        told = "" if written.new else " (exported before)"
        done.told.append(f"MLflow: run {written.run} at {written.tracking_uri}{told}")
    done.facts = facts(reports) | {"missing": done.missing}
    for report in reports:
        done.tables += _tables(report)
        done.told += [f"{report.evaluation.name}: {one}" for one in _left_out(report)]
    done.told += [f"missing: {one}" for one in done.missing]
    return done


def _left_out(report: SetReport) -> Iterator[str]:
    """Yield limits of the figures: unread passages, notes, and policies without results."""
    if report.left_out:
        left = f"{report.left_out:,} passages of the collection were not searched"
        yield f"{left}, which makes the search easier"
    if report.note:
        yield report.note
    for policy, why in report.evaluation.absent.items():
        yield f"{policy} did not take part: {why}"


def _check_writable(file: Path) -> None:
    """Refuse an unwritable file before the work starts."""
    there = next(one for one in (file, *file.absolute().parents) if one.exists())
    if (there != file and not there.is_dir()) or not os.access(there, os.W_OK):
        raise DataError(f"cannot write {file}: {there} is not writable; choose another file")


def _told(asked: dict[str, Any]) -> bool:
    """Return whether the model must follow instructions, besides answering."""
    return bool(asked["judge"]) or asked["form"] == "rewrite"


def _rewriting(asked: dict[str, Any], judge: Judge | None) -> Judge | None:
    """Return the model that rewrites turns; None if it cannot follow instructions."""
    return None if (asked["answers"], asked["model"]) == ("local", READING) else judge


def _destination(asked: dict[str, Any]) -> Destination:
    uri = None if asked["uri"] == "local" else asked["uri"]
    store = state_directory(asked["home"]) / "mlflow"
    return Destination(store, EXPERIMENT, datetime.now(UTC), uri, code_commit())


def _measured(
    name: str, embedder: Embedder | None, judge: Judge | None, asked: dict[str, Any],
    telling: ProgressReport,
) -> SetReport:  # fmt: skip
    seed, folds, address = asked["seed"], asked["folds"], asked["ray_address"]
    shared = SharedTraining()
    taking_part, answerer = _taking_part(asked, judge, shared), _answerer(asked, judge)
    prepared = prepare(
        name, asked["data"], embedder=embedder, form=asked["form"], most=asked["questions"],
        judge=_rewriting(asked, judge), at_most=asked["at_most"],
        done=telling.part(f"{name}: reading, embedding, linking and retrieving"),
    )  # fmt: skip
    count = len(prepared.questions)
    evaluation = evaluate(
        name, prepared.pools, taking_part, groups=prepared.groups, folds=folds, seed=seed,
        answerer=answerer,
        judge=Faithfulness(judge) if judge is not None and asked["judge"] else None,
        address=address,
        done=telling.part(f"{name}: learning and selecting", len(taking_part) * count),
    )  # fmt: skip
    variants: list[AblationResult] = []
    if asked["ablations"]:
        variants = ablations(
            evaluation, prepared.collection, prepared.questions, groups=prepared.groups,
            query=prepared.forms[prepared.form], limits=_limits(asked),
            rerankers=_rerankers(embedder, asked["home"]), folds=folds, seed=seed,
            address=address, shared=shared,
            done=telling.part(f"{name}: changing one part at a time"),
        )  # fmt: skip
    forms = _forms(prepared, folds, seed, address, telling) if prepared.conversational else None
    telling.part(f"{name}: intervals")
    return set_report(
        evaluation, left_out=prepared.evidence.left_out, note=prepared.note,
        ablated=variants, forms=forms,
    )  # fmt: skip


def _rerankers(embedder: Embedder | None, home: Path | None) -> dict[str, Reranker | str]:
    """Return the rerankers, or the reason why one is missing."""
    by_meaning = "needs vectors; leave out --words"
    found: dict[str, Reranker | str] = {
        "cosine": by_meaning if embedder is None else CosineReranker(embedder)
    }
    try:
        found["cross-encoder"] = CrossEncoder(state_directory(home) / "models" / "cross-encoder")
    except DataError as absent:
        found["cross-encoder"] = str(absent)
    return found


def _limits(asked: dict[str, Any]) -> Limits:
    return Limits(picks=asked["picks"], tokens=asked["tokens"])


def _answerer(asked: dict[str, Any], judge: Judge | None) -> Answerer | None:
    continued = asked["answers"] == "local" and not _told(asked)
    return None if judge is None else Answerer(judge, continued=continued)


def _taking_part(
    asked: dict[str, Any], judge: Judge | None, shared: SharedTraining
) -> list[Contender]:
    wanted, seed = asked["policies"], asked["seed"]
    limits, answerer = _limits(asked), _answerer(asked, judge)
    chosen = wanted if wanted == "all" else [one.strip() for one in wanted.split(";")]
    found = contenders(chosen, limits=limits, seed=seed, shared=shared)
    if asked["until_sure"]:
        if answerer is None:
            raise InputError("--until-sure needs an answering model; name one with --answers")
        if asked["ray_address"] is not None:
            raise InputError("--until-sure calls the model from this process; leave out --ray")
        clone = contenders([CLONE], limits=limits, seed=seed, shared=shared)[-1]
        found.append(StopWhenStable(clone, AnswerStability(answerer)))
    return found


def _forms(
    prepared: Prepared, folds: int, seed: int, address: str | None, telling: ProgressReport
) -> FormComparison:
    part = f"{prepared.evidence.name}: searching with every form of query"
    table = tabulate(
        prepared.questions, prepared.collection, prepared.forms, groups=prepared.groups,
        done=telling.part(part, len(prepared.questions)),
    )  # fmt: skip
    return compare_forms(table, folds=folds, seed=seed, address=address)


def opened_embedder(
    stack: ExitStack, home: Path | None, *, words_alone: bool, telling: ProgressReport | None = None
) -> Embedder | None:
    """Return the embedder with its cache; None with `words_alone`.

    Raises:
        DataError: the extra ``rag`` is missing.
    """
    if words_alone:
        return None
    model: Embedder = MiniLM(home)
    if telling is not None:
        model = telling.embedded(model)
    return stack.enter_context(CachedEmbedder(model, state_directory(home) / "embeddings.sqlite"))


def asked_model(stack: ExitStack, asked: dict[str, Any], *, told: bool) -> Judge | None:
    """Return the model of the options ``answers`` and ``model``; None for none.

    `told` means that the model must follow instructions: judge, or rewrite a question.

    Raises:
        InputError: a server without a model name, an unknown local model, or a local model that
            cannot follow instructions.
        DataError: an extra is missing.
    """
    where, home = asked["answers"], asked["home"]
    if where == "none":
        return None
    if where == "local":
        name = asked["model"] or CHATTING
        if name not in {CHATTING, READING}:
            raise InputError(
                f"unknown local model {name!r} in --model: expected {CHATTING} or {READING}"
            )
        if told and name == READING:
            raise InputError(
                f"local model {READING} cannot follow instructions; use --model {CHATTING}"
            )
        backend: Any = stack.enter_context(
            (reading_model if name == READING else local_model)(home)
        )
    else:
        if not asked["model"]:
            raise InputError(
                "--answers names a server, and no model is given; name it with --model"
            )
        backend = ChatBackend(where, asked["model"], api_key=os.environ.get(_KEY))
    cache = JudgeCache(state_directory(home) / "answers.sqlite")
    return Judge(backend, cache=cache, budget=Budget(max_calls=asked["max_calls"]), timeout_s=300.0)


def _tables(report: SetReport) -> Iterator[tuple[list[dict[str, Any]], tuple[str, ...]]]:
    name, gain = report.evaluation.name, "all gold over " + BASELINE
    shown = tuple(one for one in _SHOWN if one in report.measures)
    rows = []
    for policy, values in report.means.items():
        row: dict[str, Any] = {"set": name, "policy": policy}
        row |= {one: number(values[one].value) for one in shown}
        ahead = report.ahead.get(policy, {}).get("all_gold")
        rows.append(row | {gain: _signed(ahead)})
    yield rows, ("set", "policy", *shown, gain)
    if report.ablated:
        rows = [
            {"set": name, "changed": one.part, "to": one.variant,
             "all gold": "not tried: " + one.why if one.figure is None else str(one.figure),
             "less": one.over if one.ahead else "", "by": _signed(one.ahead)}
            for one in report.ablated
        ]  # fmt: skip
        yield rows, ("set", "changed", "to", "all gold", "less", "by")
    if report.forms is not None:
        forms = {**report.forms.forms, "learned, held out": report.forms.learned}
        rows = [{"set": name, "query form": form, "recall@5": str(one)}
                for form, one in forms.items()]  # fmt: skip
        yield rows, ("set", "query form", "recall@5")


def _signed(one: Estimate | None) -> str:
    return "" if one is None else f"{one.value:+.3f} ({one.low:+.3f} to {one.high:+.3f})"
