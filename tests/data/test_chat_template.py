"""Chat templates are found, and render the text of transformers' apply_chat_template, which is the oracle."""

import json

import pytest

from .conftest import REPOSITORY, app_module, prepare_module

TEMPLATES = REPOSITORY / "tests/data/templates"
TOKENS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
USER, ANSWER = {"role": "user", "content": " 1 < 2?\n"}, {"role": "assistant", "content": "Yes, näturlich."}
CALL = {"function": {"name": "add", "arguments": {"a": "1 & <é>", "b": [None, True]}}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "text": "<&'é>"}}}]
CHATS = {
    "one turn": [USER, ANSWER],
    "system and two turns": [{"role": "system", "content": "Be brief."}, USER, ANSWER, USER, ANSWER],
    "reasoning": [USER, {**ANSWER, "reasoning_content": "R1"}, USER, {**ANSWER, "reasoning": "R2"}],
    "think tags": [USER, {"role": "assistant", "content": "<think>\nR\n</think>\n\nYes"}],
    "call and answer": [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "3"},
        {"role": "tool", "content": "4"},
        ANSWER,
    ],
    "null keys": [{**USER, "tool_calls": None}, {**ANSWER, "reasoning_content": None, "tool_calls": None}],
}


def chat_template():
    return app_module("chat_template")


def template(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def peer(small_bpe):
    """apply_chat_template of transformers."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(small_bpe / "tokenizer.json"), **TOKENS)
    return tokenizer.apply_chat_template


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", ["llama3", "llama3_dated", "qwen3", "tagged"])
@pytest.mark.parametrize("extra", [{}, {"tools": TOOLS}, {"enable_thinking": False}, {"add_generation_prompt": True}])
def test_the_text_is_that_of_transformers(peer, name, chat, extra):
    variables = {"date_string": "26 Jul 2024", **extra}
    text, _ = chat_template().render(template(name), CHATS[chat], special_tokens=TOKENS, **variables)
    assert text == peer(CHATS[chat], chat_template=template(name), tokenize=False, **variables)


def test_generation_tags_give_the_spans_of_transformers(peer):
    messages = CHATS["system and two turns"]
    text, spans = chat_template().render(template("tagged"), messages, special_tokens=TOKENS)
    assert [text[begin:end] for begin, end in spans] == ["Yes, näturlich.<|eot_id|>"] * 2
    from transformers.utils.chat_template_utils import render_jinja_template

    texts, indices = render_jinja_template(
        [messages], chat_template=template("tagged"), return_assistant_tokens_mask=True, **TOKENS
    )
    assert (texts, [list(map(tuple, found)) for found in indices]) == ([text], [spans])


def test_loop_controls_and_json_of_transformers(peer):
    source = (
        "{% for m in messages %}\n  {% if loop.last %}{% break %}{% endif %}\n{{ m | tojson(indent=2) }}\n{% endfor %}"
    )
    text, _ = chat_template().render(source, CHATS["one turn"], special_tokens={})
    assert text == peer(CHATS["one turn"], chat_template=source, tokenize=False)


def test_the_date_is_the_same_every_day():
    text, _ = chat_template().render(template("llama3_dated"), [USER], special_tokens=TOKENS)
    assert "Today Date: 26 Jul 2024" in text


def test_null_keys_are_not_written():
    """Arrow gives each message the keys of all others, as null."""
    message = {**USER, "tool_calls": None, "reasoning": None}
    text, _ = chat_template().render("{{ messages[0] | tojson }}", [message], special_tokens={})
    assert json.loads(text) == USER


def test_no_tools_and_an_empty_list_of_tools_are_the_same():
    source = "{{ 'tools' if tools is not none else 'none' }}"
    assert chat_template().render(source, [USER], tools=[], special_tokens={})[0] == "none"


def test_the_template_of_a_folder(tmp_path):
    load, error = chat_template().load_chat_template, prepare_module("").PrepareError
    with pytest.raises(error, match="--chat_template FILE"):
        load(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    for damaged in (5, ["a"], [{"name": ["default"]}]):
        config.write_text(json.dumps({"chat_template": damaged}))
        with pytest.raises(error, match="--chat_template FILE"):
            load(tmp_path)
    config.write_text(json.dumps({"chat_template": "plain"}))
    assert load(tmp_path) == "plain"
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "of several"}]
    config.write_text(json.dumps({"chat_template": named}))
    assert load(tmp_path) == "of several"
    (tmp_path / "chat_template.jinja").write_text("of its own file")
    assert load(tmp_path) == "of its own file"
    (tmp_path / "other").write_text("given")
    assert load(tmp_path, tmp_path / "other") == "given"
    with pytest.raises(error, match="does not exist"):
        load(tmp_path, tmp_path / "missing.jinja")


def test_the_template_of_a_tokenizer_by_name_comes_from_the_hub(monkeypatch, chat_tokenizer):
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    folder = chat_tokenizer("llama3")

    def download(_name: str, part: str) -> str:
        if not (folder / part).exists():
            raise LocalEntryNotFoundError(part)
        asked.append(part)
        return str(folder / part)

    asked = []
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    encoder = prepare_module("encoders").load_encoder("some/model", None, None)
    assert "chat_template.jinja" in asked
    assert chat_template().load_chat_template(encoder.folder) == template("llama3")
    assert encoder.template_tokens == {"bos_token": "<|begin_of_text|>", "eos_token": "<stop>"}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% if %}", "not valid Jinja"),
        ("{{ raise_exception('Roles must alternate') }}", "Roles must alternate"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{% macro m() %}ab{% generation %}c{% endgeneration %}{% endmacro %}{{ m() }}", "macro"),
    ],
)
def test_a_template_that_fails_is_refused(source, reason):
    with pytest.raises(prepare_module("").PrepareError, match=reason):
        chat_template().render(source, [USER], special_tokens={})
