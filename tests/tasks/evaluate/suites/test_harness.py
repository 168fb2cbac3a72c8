"""What lm-evaluation-harness asks and gets; with the library itself where the extra `harness` is installed (it is too
large for `dev`: docs/evaluation.md says how to run these)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from model.chat import Chat
from tasks.evaluate.suites.harness import continuations, harness, likelihoods
from tasks.evaluate.suites.subject import Ask, Network
from tests.tasks.evaluate.conftest import small_model, small_tokenizer


@dataclass
class Instance:
    """A request, as the harness makes them."""

    args: tuple[Any, ...]


@pytest.fixture(scope="module")
def subject() -> Network:
    return Network(small_model(), Chat(small_tokenizer()))


def test_likelihoods_of_pairs_and_of_texts_by_themselves(subject):
    pair, alone = likelihoods(subject, [Instance(("12 + 30 =", " 42")), Instance(("The answer",))])
    assert pair == (pytest.approx(subject.likelihoods([("12 + 30 =", " 42")])[0].log_p, rel=1e-4), False)
    assert alone[0] < 0


def test_continuations_end_before_what_they_are_to_end_at(subject):
    (whole,) = continuations(subject, [Instance(("What is", {"max_gen_toks": 8}))])
    assert whole == subject.replies([Ask(text="What is", max_new_tokens=8)])[0][0].content
    stop = whole[len(whole) // 2]
    asked = [
        Instance(("What is", {"until": [stop, "never"], "max_gen_toks": 8})),
        Instance(("a" * 900, {"until": "x"})),
    ]
    assert continuations(subject, asked) == [whole[: whole.index(stop)], ""]
    assert continuations(subject, [Instance(("What is", {"until": ["", "never"], "max_gen_toks": 8}))]) == [whole]


CHOICE = """
task: local_choice
dataset_path: json
dataset_kwargs: {data_files: FILE}
test_split: train
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}]
"""
ANSWER = """
task: local_answer
dataset_path: json
dataset_kwargs: {data_files: FILE}
test_split: train
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{said}}"
generation_kwargs: {until: ["never"], max_gen_toks: 6, do_sample: false}
metric_list: [{metric: exact_match}]
"""


def test_the_library_runs_local_tasks_and_scores_what_the_model_says(subject, tmp_path, monkeypatch):
    lm_eval = pytest.importorskip("lm_eval", reason="the extra `harness` is not installed")
    from lm_eval.tasks import TaskManager

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    questions = ["12 + 30 =", "The answer", "What is 7?", "Return of"]
    choices = [" 42", " Paris"]
    rows, right = [], 0
    for place, question in enumerate(questions):
        told = subject.likelihoods([(question, one) for one in choices])
        right += (told[1].log_p > told[0].log_p) == (place == 0)  # the answer is Paris for the first question alone
        (said,) = continuations(subject, [Instance((question, {"max_gen_toks": 6}))])
        row = {"question": question, "choices": choices, "answer": int(place == 0)}
        rows.append(row | {"said": said if place < 3 else "something else"})
    file = tmp_path / "items.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for name, task in (("choice", CHOICE), ("answer", ANSWER)):
        (tmp_path / f"{name}.yaml").write_text(task.replace("FILE", str(file)))
    tasks = TaskManager(include_path=str(tmp_path), include_defaults=False)
    found = lm_eval.simple_evaluate(
        model=harness(subject), tasks=["local_choice", "local_answer"], task_manager=tasks, bootstrap_iters=0
    )["results"]
    assert found["local_choice"]["acc,none"] == right / 4
    assert found["local_answer"]["exact_match,none"] == 0.75
