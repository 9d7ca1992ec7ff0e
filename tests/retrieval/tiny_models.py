"""Models in ONNX small enough to write by hand: what they say of two texts can be computed.

A model's logit is the sum of its token ids, one column for each sign asked for. The tokenizer
knows a few words, each by a number.
"""

from __future__ import annotations

import json

FLOAT, INT64 = 1, 7


def field(number, value):
    """Return one field of a protocol buffer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value):
    """Return a number as protocol buffers write it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def node(kind, inputs, output, **attributes):
    """Return one operation; attributes are integers or lists of them."""
    body = b"".join(field(1, name) for name in inputs) + field(2, output) + field(4, kind)
    for name, value in attributes.items():
        if isinstance(value, list):
            described = b"".join(field(8, one) for one in value) + field(20, 7)
        else:
            described = field(3, value) + field(20, 2)
        body += field(5, field(1, name) + described)
    return body


def tensor(name, kind, length):
    """Return the description of an input or output (batch, length)."""
    size = field(1, field(2, "batch")) + field(
        1, field(1 if isinstance(length, int) else 2, length)
    )
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, size)))


def model(signs=(1,), length="tokens"):
    """Return a model whose logits are plus or minus the sum of the ids of both texts."""
    nodes = [
        node("Mul", ["input_ids", "attention_mask"], "seen"),
        node("Cast", ["seen"], "numbers", to=FLOAT),
        node("ReduceSum", ["numbers"], "plus", axes=[1], keepdims=1),
        node("Neg", ["plus"], "minus"),
        node("Concat", ["plus" if sign > 0 else "minus" for sign in signs], "logits", axis=1),
    ]
    graph = b"".join(field(1, one) for one in nodes) + field(2, "tiny")
    graph += b"".join(field(11, tensor(name, INT64, length)) for name in INPUTS)
    graph += field(12, tensor("logits", FLOAT, len(signs)))
    return field(1, 6) + field(7, graph) + field(8, field(2, 11))


INPUTS = ("input_ids", "attention_mask")
UNKNOWN = "[UNK]"


def tokenizer(words):
    """Return a tokenizer of some words, numbered from 1; others are 0."""
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415 - an extra

    known = {UNKNOWN: 0} | {word: number for number, word in enumerate(words, 1)}
    made = Tokenizer(models.WordLevel(known, unk_token=UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made.to_str()


def write(folder, words, *, signs=(1,), length="tokens", labels=None):
    """Write a model as it is exported."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model(signs, length))
    (folder / "tokenizer.json").write_text(tokenizer(words), encoding="utf-8")
    if labels is not None:
        named = {str(number): label for number, label in enumerate(labels)}
        (folder / "config.json").write_text(json.dumps({"id2label": named}), encoding="utf-8")
    return folder
