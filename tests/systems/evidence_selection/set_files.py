"""Files of sets, as tests write them."""

import gzip
import json

OWN_PASSAGES = [
    {"id": "p1", "title": "Wings", "text": "Lift on a wing."},
    {"id": "p2", "title": "", "text": "Drag."},
]
OWN_QUESTION = {
    "id": "q1", "question": "and drag?", "answers": ["Drag."], "gold": ["p2", "p9"],
    "pool": ["p2", "p1"], "history": ["what lifts?", "A wing."], "domain": "flight",
    "split": "dev", "conversation": "c1", "answerability": ["ANSWERABLE"],
}  # fmt: skip
HOTPOT = {
    "_id": "5a", "question": "Who?", "answer": "Rush", "type": "bridge", "level": "hard",
    "context": [["Rush", ["A band.", " From Toronto."]], ["Toto", ["Another band."]]],
    "supporting_facts": [["Rush", 0], ["Rush", 1]],
}  # fmt: skip


def write(folder, name, content):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, list):
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
    if name.endswith(".gz"):
        file.write_bytes(gzip.compress(content.encode()))
    else:
        file.write_text(content, encoding="utf-8")
    return file


def own(tmp_path, question=OWN_QUESTION, suffix=""):
    write(tmp_path / "own", f"passages.jsonl{suffix}", OWN_PASSAGES)
    write(tmp_path / "own", f"questions.jsonl{suffix}", [question])
