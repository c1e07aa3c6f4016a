"""The conversations that ship with mpzero."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TINY_CHAT = Path(__file__).resolve().parents[2] / "assets/tiny_chat"


def conversations(name: str) -> list[list[dict]]:
    return [json.loads(line)["messages"] for line in (TINY_CHAT / "conversations" / name).read_text().splitlines()]


def test_they_are_what_their_program_writes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, TINY_CHAT / "make.py", tmp_path], check=True, timeout=120)
    for name in ("conversations/train.jsonl", "conversations/validation.jsonl"):
        assert (tmp_path / name).read_bytes() == (TINY_CHAT / name).read_bytes()


def test_each_answer_has_three_lines_and_none_is_in_both_files() -> None:
    train, validation = conversations("train.jsonl"), conversations("validation.jsonl")
    assert len(train) + len(validation) >= 300
    for messages in train + validation:
        roles = [message["role"] for message in messages if message["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        for message in messages:
            if message["role"] == "assistant":
                begins = [line.split(": ")[0] for line in message["content"].splitlines()]
                assert begins == ["Topic", "Answer", "In full"]
    questions = [
        {message["content"] for messages in part for message in messages if message["role"] == "user"}
        for part in (train, validation)
    ]
    assert not questions[0] & questions[1]


def test_the_model_has_the_ids_of_the_tokenizer() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(TINY_CHAT / "tokenizer/tokenizer.json"))
    config = json.loads((TINY_CHAT / "config.json").read_text())
    assert tokenizer.get_vocab_size() == config["vocab_size"]
    assert tokenizer.token_to_id("<|endoftext|>") == config["eos_token_id"]
