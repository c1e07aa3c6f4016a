"""Conversations from jsonl to losses: prepare_data.py, then the trainer, beside TRL's SFTTrainer."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from trainer import REPOSITORY, metrics, train

pytestmark = pytest.mark.e2e

STEPS, BATCH, LENGTH = 30, 8, 192
TEMPLATE = REPOSITORY / "tests" / "data" / "templates" / "tagged.jinja"


def conversations() -> list[dict]:
    """Of one or two questions and answers, some after a system message."""
    generator = random.Random(1)
    words = ["the", "river", "runs", "past", "old", "stone", "houses", "while", "quiet", "children", "count", "coins"]

    def message(role: str, longest: int) -> dict:
        return {"role": role, "content": " ".join(generator.choices(words, k=generator.randint(1, longest)))}

    rows = []
    for i in range(STEPS * BATCH):
        turns = [message("system", 6)] if i % 3 == 0 else []
        for _ in range(1 + i % 2):
            turns += [message("user", 10), message("assistant", 8)]
        rows.append({"messages": turns})
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """chat.jsonl; model/: random weights and a tokenizer, as transformers saves them."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    folder = tmp_path_factory.mktemp("finetuning")
    rows = conversations()
    (folder / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([turn["content"] for row in rows for turn in row["messages"]], trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=special[0], eos_token=special[-1], pad_token=special[1]
    )
    fast.chat_template = TEMPLATE.read_text()
    torch.manual_seed(0)
    sizes = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.Qwen3Config(**sizes, **heads, max_position_embeddings=512, tie_word_embeddings=True)
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder / "model")
    fast.save_pretrained(folder / "model")
    return folder


def prepared(folder: Path, name: str, *flags: str) -> Path:
    output = folder / name
    program = [sys.executable, str(REPOSITORY / "app" / "prepare_data.py"), str(folder / "chat.jsonl"), str(output)]
    flags = (f"--tokenizer={folder / 'model'}", f"--seq_length={LENGTH}", "--overwrite", *flags)
    subprocess.run([*program, *flags], check=True, timeout=120, capture_output=True, text=True)
    return output


def trained(folder: Path, name: str, data: Path, steps: int, *flags: str, ranks: int = 1) -> list[dict]:
    file = folder / f"{name}.jsonl"
    settings = {
        "init_from": folder / "model",
        "train_data": data,
        "seq_length": LENGTH,
        "max_steps": steps,
        "checkpoint_dir": folder / name,
        "checkpoint_freq": 0,
        "metrics_file": file,
        "device": "cpu",
        "bf16": "false",
        "shuffle": "false",
        "lr_scheduler_type": "constant",
        "learning_rate": 1e-3,
        "weight_decay": 0,
        "adam_beta2": 0.95,
    }
    train(*(f"--{flag}={value}" for flag, value in settings.items()), *flags, ranks=ranks)
    return metrics(file)


def test_losses_are_those_of_trl(folder: Path) -> None:
    """The same examples in the same order, with the loss on the assistant's turns; micro-batches and ranks have
    different numbers of loss tokens."""
    torch = pytest.importorskip("torch")
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    transformers = pytest.importorskip("transformers")

    class InOrder(trl.SFTTrainer):
        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    arguments = trl.SFTConfig(
        output_dir=str(folder / "trl"),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=BATCH // 2,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        adam_beta2=0.95,
        max_grad_norm=1.0,
        assistant_only_loss=True,
        packing=False,
        max_length=LENGTH,
        bf16=False,
        gradient_checkpointing=False,
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = InOrder(
        model=transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32),
        args=arguments,
        train_dataset=datasets.Dataset.from_list(conversations()),
        processing_class=transformers.AutoTokenizer.from_pretrained(folder / "model"),
    )
    trainer.train()
    expected = [line for line in trainer.state.log_history if "loss" in line]
    data = prepared(folder, "padded.h5", "--packing=false")
    for ranks in (1, 4):
        flags = ("--train_micro_batch_size_per_gpu=1", f"--gradient_accumulation_steps={BATCH // ranks}")
        ours = trained(folder, f"{ranks}_ranks", data, STEPS, *flags, ranks=ranks)
        assert len(ours) == len(expected) == STEPS
        for step, line in zip(ours, expected, strict=True):
            assert step["loss"] == pytest.approx(line["loss"], rel=1e-5), f"step {step['step']}"
            assert step["grad_norm"] == pytest.approx(line["grad_norm"], rel=1e-4), f"step {step['step']}"
    assert ours[-1]["loss"] < 0.6 * ours[0]["loss"]


@pytest.mark.parametrize("adapters", [(), ("--lora_r=4",)], ids=["full", "adapters"])
def test_packed_examples_have_the_loss_of_each_alone(folder: Path, adapters: tuple[str, ...]) -> None:
    """One step over all examples, packed and one in a row."""
    packed, padded = prepared(folder, "packed.h5"), prepared(folder, "padded.h5", "--packing=false")
    import h5py

    results, rows = {}, {}
    for file in (packed, padded):
        with h5py.File(file) as data:
            rows[file] = (len(data["tokens"]) - 1) // LENGTH
        flags = (
            "--train_micro_batch_size_per_gpu=1",
            f"--gradient_accumulation_steps={rows[file]}",
            "--max_grad_norm=0",
        )
        results[file] = trained(folder, f"{file.stem}_{len(adapters)}", file, 1, *flags, *adapters)[0]
    assert rows[packed] < rows[padded] == STEPS * BATCH
    for key, tolerance in (("loss", 1e-6), ("grad_norm", 1e-5)):
        assert results[packed][key] == pytest.approx(results[padded][key], rel=tolerance)
    unmasked = ("--document_mask=false", "--train_micro_batch_size_per_gpu=1")
    accumulation = f"--gradient_accumulation_steps={rows[packed]}"
    other = trained(folder, f"unmasked_{len(adapters)}", packed, 1, *unmasked, accumulation, *adapters)
    assert abs(other[0]["loss"] / results[packed]["loss"] - 1) > 1e-5
