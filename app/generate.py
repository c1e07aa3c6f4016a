#!/usr/bin/env python3
"""Completes a prompt or answers a chat message, using the model's Hugging Face tokenizer.

    generate.py checkpoints --prompt "Once upon a time"
    generate.py checkpoints --chat "How far is the moon?" --system "Answer in one sentence."
    generate.py checkpoints/fp32 --prompt "Once upon a time" --tokenizer Qwen/Qwen3-0.6B --temperature 0

Special token names in the prompt are encoded as special tokens. The other flags are passed to `mpzero generate`, which
runs the model.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from prepare import PrepareError, shown
from prepare.arguments import parse_known
from prepare.encoders import LoadedTokenizer, load_tokenizer
from run_files.utf8 import restart_in_utf8

ROOT = Path(__file__).resolve().parents[1]
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Terminal control characters except tabs and newlines, and characters that change the text direction.
CONTROLS = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]|\\r(?!\\n)")
# Maximum number of buffered tokens: two UTF-8 characters of four single-byte tokens each.
MOST_WAITING = 8
# Flags that are passed to `mpzero generate`, whose --help describes them.
PASSED_ON = ("max_tokens", "temperature", "top_k", "seed", "device", "dtype", "tag", "base_model", "model_config")
INTERRUPTED = 130
BROKEN_PIPE = 141  # 128 + SIGPIPE, as in a shell


def main() -> int:
    arguments = parse_arguments()
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    try:
        return run(arguments)
    except PrepareError as error:
        print(f"generate.py: {error}", file=sys.stderr)
        return 2
    except PermissionError as error:
        print(f"generate.py: {shown(error.filename or 'a file')} cannot be read: {error.strerror}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe. Discard the output that Python would flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="model folder, as for mpzero generate")
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="text to complete")
    prompt.add_argument("--chat", metavar="TEXT", help="user message to answer")
    parser.add_argument("--system", metavar="TEXT", help="with --chat: system message")
    parser.add_argument(
        "--chat_template",
        metavar="FILE",
        help="with --chat: Jinja file (default: the template of the training data if recorded, else the tokenizer's)",
    )
    parser.add_argument(
        "--chat_template_kwargs",
        metavar="JSON",
        help="with --chat: template variables, e.g. '{\"enable_thinking\": false}'",
    )
    texts = descriptions() if {"-h", "--help"} & set(sys.argv[1:]) else {}
    for name in PASSED_ON:
        parser.add_argument(f"--{name}", metavar="VALUE", help=texts.get(name, "see mpzero generate --help"))
    parser.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="folder, tokenizer.json, Hugging Face name, or bytes (default: the run's tokenizer)",
    )
    parser.add_argument(
        "--add_bos",
        choices=("auto", "true", "false"),
        default="auto",
        help="prepend BOS to the prompt (auto: follow the training data if recorded, else the tokenizer's "
        "post-processor)",
    )
    parser.add_argument("--untrained", action="store_true", help=texts.get("untrained", "see mpzero generate --help"))
    return parse_known(parser)


def descriptions() -> dict[str, str]:
    """Returns the help text of each flag of `mpzero generate`, or {} if mpzero is not built."""
    try:
        command = [str(program()), "generate", "--help"]
        text = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True).stdout
    except (PrepareError, OSError, subprocess.CalledProcessError):
        return {}
    found = re.findall(r"^  --(\w+)(?: \S+)?  +(.+(?:\n {10,}.+)*)", text, re.MULTILINE)
    return {name: " ".join(words.split()).replace("%", "%%") for name, words in found}


def run(arguments: argparse.Namespace) -> int:
    check_flags(arguments)
    given = {name: value for name in PASSED_ON if (value := getattr(arguments, name)) is not None}
    command = [str(program()), "generate", arguments.checkpoint]
    described = subprocess.run(
        [*command, "--describe", *flags(given, "tag", "base_model", "model_config")],
        stdout=subprocess.PIPE,
        check=False,
    )
    if described.returncode != 0:
        return described.returncode
    model = json.loads(described.stdout)
    name = arguments.tokenizer or model["tokenizer"]
    if not name:
        raise PrepareError(f"{shown(model['model'])} does not record a tokenizer: pass --tokenizer.")
    command += flags(given, *PASSED_ON) + ["--untrained"] * arguments.untrained
    if name == "bytes":
        if arguments.chat is not None:
            raise PrepareError("--chat needs a Hugging Face tokenizer, but the model uses 'bytes': use --prompt.")
        if arguments.add_bos == "true":
            raise PrepareError("tokenizer 'bytes' has no BOS: omit --add_bos true.")
        sys.stdout.flush()
        tokenizer = ["--tokenizer=bytes"] if arguments.tokenizer else []
        os.execv(command[0], [*command, f"--prompt={arguments.prompt}", *tokenizer])
    loaded = load_tokenizer(name)
    tokenizer, vocab_size = loaded.library, max(loaded.vocabulary().values()) + 1
    if vocab_size > model["vocab_size"]:
        raise PrepareError(
            f"tokenizer '{shown(name)}' has {vocab_size} ids, but {shown(model['model'])} "
            f"has {model['vocab_size']}: pass the model's --tokenizer."
        )
    flag, text = ("prompt", arguments.prompt) if arguments.chat is None else ("chat", chat_of(arguments, model, loaded))
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise PrepareError(f"--{flag} is not UTF-8: only models trained with --tokenizer bytes accept arbitrary bytes.")
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if not ids:
        raise PrepareError(f"--{flag} encodes to no tokens: pass at least one character.")
    if arguments.chat is None:
        bos, adds_bos, note = loaded.bos(add_bos_of(arguments, model))
        ids = [bos] * adds_bos + ids
        if note is not None:
            print(f"generate.py: {note}.", file=sys.stderr)
        print(f"generate.py: {f'BOS {bos} is' if adds_bos else 'BOS is not'} prepended to the prompt.", file=sys.stderr)
    if len(ids) > model["positions"]:
        raise PrepareError(
            f"--{flag} has {len(ids)} tokens, but {shown(model['model'])} has only {model['positions']} "
            "positions: shorten the text."
        )
    shown_before, before = arguments.prompt or "", ids
    if model["model_type"] == "t5":  # encoder inputs end with EOS, and the output is a separate sequence
        ids, shown_before, before = [*ids, *model["eos_token_ids"][:1]], "", []
    command += ["--statistics_last", "--prompt_tokens=" + ",".join(map(str, ids))]
    return follow(command, shown_before, TextStream(tokenizer, before))


def check_flags(arguments: argparse.Namespace) -> None:
    if arguments.chat is None:
        for name in ("system", "chat_template", "chat_template_kwargs"):
            if getattr(arguments, name) is not None:
                raise PrepareError(f"--{name} has no effect without --chat: omit it, or pass --chat TEXT.")
    elif arguments.add_bos != "auto":
        raise PrepareError("--add_bos has no effect with --chat, because the template writes BOS: omit it.")


def chat_of(arguments: argparse.Namespace, model: dict, loaded: LoadedTokenizer) -> str:
    """Renders --chat and --system as a prompt."""
    from chat_template import load_chat_template, render, variables_of  # imports jinja2

    template = model["chat_template"]
    if arguments.chat_template is not None or not template:
        override = arguments.chat_template and Path(arguments.chat_template)
        template = load_chat_template(loaded.folder, override)
    variables = variables_of(arguments.chat_template_kwargs or "{}")
    messages = [{"role": "user", "content": arguments.chat}]
    if arguments.system is not None:
        messages.insert(0, {"role": "system", "content": arguments.system})
    tokens = loaded.declared.template_tokens()
    return render(template, messages, add_generation_prompt=True, special_tokens=tokens, **variables)[0]


def add_bos_of(arguments: argparse.Namespace, model: dict) -> str:
    """Returns --add_bos or, if it is auto, the recorded value. model: output of `mpzero generate --describe`, in which
    add_bos is null or missing if the checkpoint does not record it."""
    recorded = model.get("add_bos")
    if arguments.add_bos != "auto" or recorded is None:
        return arguments.add_bos
    return "true" if recorded else "false"


def flags(given: dict[str, str], *names: str) -> list[str]:
    return [f"--{name}={given[name]}" for name in names if name in given]


def program() -> Path:
    """Returns the path of mpzero in the installation or the build folder."""
    path = ROOT / "bin/mpzero"
    if not path.exists():
        path = Path(os.environ.get("BUILD_DIR", ROOT / "build")) / "bin/mpzero"
    if not path.exists():
        raise PrepareError(f"{path} is not built: run './train-singlenode.sh --build-only' in {ROOT}.")
    return path


def follow(command: list[str], prompt: str, text: TextStream) -> int:
    """Prints the prompt once the model is loaded, then the decoded text of each id, and the statistics to stderr."""
    begins, statistics = prompt, ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        for line in process.stdout:
            if line.startswith("mpzero: "):
                statistics = line
                continue
            show(begins + text.add(int(line)))
            begins = ""
    if process.returncode == 0 or not begins:
        show(begins + text.finish() + "\n")
    print(statistics, end="", file=sys.stderr)
    return process.returncode


def show(text: str) -> None:
    print(CONTROLS.sub(REPLACEMENT, text), end="", flush=True)


class TextStream:
    """Decodes ids incrementally. Buffers a character that spans several tokens until it is complete."""

    def __init__(self, tokenizer, ids: list[int]):
        self._tokenizer = tokenizer
        self._ids = list(ids)
        self._context = 0  # decode from here: a word's leading space may depend on the previous token
        self._shown = len(ids)

    def add(self, token: int) -> str:
        self._ids.append(token)
        text = self._new_text()
        if text.endswith(REPLACEMENT) and len(self._ids) - self._shown < MOST_WAITING:
            return ""
        return self._take(text)

    def finish(self) -> str:
        return self._take(self._new_text())

    def _new_text(self) -> str:
        before = self._decode(self._ids[self._context : self._shown])
        return self._decode(self._ids[self._context :])[len(before) :]

    def _take(self, text: str) -> str:
        self._context, self._shown = self._shown, len(self._ids)
        return text

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)


if __name__ == "__main__":
    restart_in_utf8()
    sys.exit(main())
