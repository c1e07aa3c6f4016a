"""A model that was fine-tuned on conversations: its export answers in transformers as mpzero generate does."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from trainer import BUILD, ENVIRONMENT, REPOSITORY, train

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TINY_CHAT = REPOSITORY / "assets/tiny_chat"
END_OF_TEXT, END_OF_TURN = 765, 767
# Another template than that of the tokenizer's folder.
TEMPLATE = (
    "{{ bos_token or '' }}{% for message in messages %}<|im_start|>{{ message.role | upper }}\n{{ message.content }}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>ASSISTANT\n{{ mark or '' }}{% endif %}"
)
SYSTEM, QUESTION = "Answer in three lines.", "What is 3 plus 4?"
ANSWER = "Topic: sums\nAnswer: 7"
PROMPT = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]


def generate(folder, *flags, check=True):
    words = [sys.executable, REPOSITORY / "app/generate.py", folder, "--temperature=0", "--device=cpu", *flags]
    environment = {**os.environ, **ENVIRONMENT, "BUILD_DIR": str(BUILD)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, check=False)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def chat(folder, *flags):
    return generate(folder, f"--chat={QUESTION}", f"--system={SYSTEM}", *flags).stdout.removesuffix("\n")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Weights, tokenizer and generation_config.json of a base model, which ends texts at END_OF_TEXT alone."""
    folder = tmp_path_factory.mktemp("base")
    config = transformers.AutoConfig.from_pretrained(TINY_CHAT)
    torch.manual_seed(5)
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)
    for path in (TINY_CHAT / "tokenizer").iterdir():
        shutil.copy(path, folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": END_OF_TEXT, "top_p": 0.8}))
    return folder


def fine_tune(base, folder, *flags):
    """Learns one conversation by heart. -> the folder of checkpoints"""
    messages = [*PROMPT, {"role": "assistant", "content": ANSWER}]
    (folder / "chat.jsonl").write_text((json.dumps({"messages": messages}) + "\n") * 60)
    data, checkpoints = folder / "train.h5", folder / "checkpoints"
    prepare = [sys.executable, REPOSITORY / "app/prepare_data.py", folder / "chat.jsonl", data]
    subprocess.run([*prepare, "--tokenizer", base, "--seq_length=64", *flags], check=True, capture_output=True)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}},
        "bf16": {"enabled": False},
    }
    (folder / "ds_config.json").write_text(json.dumps(config))
    train(
        f"--init_from={base}", f"--train_data={data}", f"--deepspeed_config={folder / 'ds_config.json'}",
        "--seq_length=64", "--max_steps=60", f"--checkpoint_dir={checkpoints}", "--device=cpu",
    )  # fmt: skip
    return checkpoints


def answer_of_transformers(folder):
    """-> (text, the last id)"""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(PROMPT, add_generation_prompt=True, return_tensors="pt")
    ids = model.generate(**prompt, do_sample=False, max_new_tokens=60)[0, prompt["input_ids"].shape[1] :].tolist()
    return tokenizer.decode(ids, skip_special_tokens=True), ids[-1]


def test_the_export_answers_as_mpzero_and_ends_its_turn(programs, base, tmp_path):
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    checkpoints = fine_tune(base, tmp_path, f"--chat_template={tmp_path / 'template.jinja'}")
    out = tmp_path / "out"
    programs.zero_to_fp32(checkpoints, out)
    assert (out / "chat_template.jinja").read_text() == TEMPLATE
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (out / name).read_bytes() == (base / name).read_bytes()
    config, generation = (json.loads((out / name).read_text()) for name in ("config.json", "generation_config.json"))
    assert config["eos_token_id"] == generation["eos_token_id"] == [END_OF_TEXT, END_OF_TURN]
    assert generation["top_p"] == 0.8

    assert answer_of_transformers(out) == (ANSWER, END_OF_TURN)
    for folder in (checkpoints, out):
        assert chat(folder) == ANSWER
    # A variable of the template changes what the model sees.
    assert chat(out, '--chat_template_kwargs={"mark": "<|endoftext|><|endoftext|>"}') != ANSWER


def test_without_a_generation_config_the_export_of_a_chat_model_gets_one(programs, base, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(base, bare)
    (bare / "generation_config.json").unlink()
    checkpoints = fine_tune(bare, tmp_path)
    programs.zero_to_fp32(checkpoints, tmp_path / "out")
    generation = json.loads((tmp_path / "out/generation_config.json").read_text())
    assert generation == {"eos_token_id": [END_OF_TEXT, END_OF_TURN]}
    template = TINY_CHAT / "tokenizer/chat_template.jinja"
    assert (tmp_path / "out/chat_template.jinja").read_bytes() == template.read_bytes()


def test_each_mistake_with_chat_is_refused(base, tmp_path):
    def refusal(*flags, folder=base):
        done = generate(folder, *flags, check=False)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr

    assert "--system" in refusal("--prompt=a", "--system=b")
    assert "--add_bos" in refusal("--chat=a", "--add_bos=true")
    assert "--chat_template_kwargs" in refusal("--chat=a", "--chat_template_kwargs=[]")
    assert "--chat_template_kwargs" in refusal("--chat=a", "--chat_template_kwargs={")
    assert str(tmp_path / "no.jinja") in refusal("--chat=a", f"--chat_template={tmp_path / 'no.jinja'}")
    bare = tmp_path / "bare"
    shutil.copytree(base, bare)
    (bare / "chat_template.jinja").unlink()
    assert "--chat_template FILE" in refusal("--chat=a", folder=bare)
    program = subprocess.run([BUILD / "bin/mpzero", "generate", base, "--chat=a"], capture_output=True, check=False)
    assert program.returncode == 2 and b"app/generate.py" in program.stderr
