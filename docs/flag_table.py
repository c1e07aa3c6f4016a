#!/usr/bin/env python3
"""Generates the tables in docs/configuration.md, scripts/completion.bash, and scripts/flags.json (for app/check.py)
from `mpzero train --help=json`.

docs/flag_table.py [HELP]      HELP: a file with this JSON (default: the output of build/bin/mpzero)
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "configuration.md"
TABLE = ROOT / "scripts" / "flags.json"
COMPLETION = ROOT / "scripts" / "completion.bash"
BEGIN, END = "<!-- flags -->\n", "<!-- end of flags -->"

COMMANDS = ("doctor", "checkpoint", "plan", "generate")  # plan also accepts the flags of train
KINDS = ("choice", "boolean")  # types of flags with a fixed set of values
BASH = """\
# shellcheck shell=bash disable=SC2207
# docs/flag_table.py writes this file. `source scripts/completion.bash` completes the commands and flags of mpzero.
_mpzero() {{
  local word=${{COMP_WORDS[COMP_CWORD]}}
  local commands='train doctor checkpoint plan generate top failure help version'
  [[ $1 == *.sh ]] || case $COMP_CWORD,${{COMP_WORDS[1]}} in
    2,checkpoint) commands='{checkpoint}' ;&
    1,* | 2,help)
      COMPREPLY=($(compgen -W "$commands" -- "$word"))
      return
      ;;
  esac
  local names='{names}'
  if [[ $1 == *.sh ]]; then names+=' --build-only'; else case ${{COMP_WORDS[1]}} in
{commands}
    top | failure | help | version) names='' ;;
  esac; fi
  case ${{COMP_WORDS[COMP_CWORD - 1]}} in
{cases}
    --model_type) COMPREPLY=($(compgen -W '{models}' -- "$word")) ;;
    *) [[ $word != -* ]] || COMPREPLY=($(compgen -W "$names" -- "$word")) ;;
  esac
}}
complete -o default -F _mpzero mpzero ./train-singlenode.sh train-singlenode.sh
"""


def program_help(command: str = "train", flag: str = "--help=json") -> str:
    """Returns the help of the built program."""
    program = Path(os.environ.get("BUILD_DIR", ROOT / "build")) / "bin" / "mpzero"
    return subprocess.run([program, command, flag], capture_output=True, text=True, check=True, encoding="utf-8").stdout


def flag_names(text: str) -> set[str]:
    """Returns the names of all flags in the JSON, including the Trainer's names."""
    flags = [flag for group in json.loads(text)["groups"] for flag in group["flags"]]
    return {flag["name"] for flag in flags} | {flag["trainer"] for flag in flags if flag["trainer"]}


def row(flag: dict) -> str:
    """Returns a table row: flag and value, meaning, default, and the equivalent ds_config.json key and Trainer flag."""
    others = [f"`{flag['ds_config']}`"] if flag["ds_config"] else []
    if flag["trainer"] and flag["trainer"] != flag["name"]:
        others.append(f"`--{flag['trainer']}`")
    default = "required" if flag["required"] else flag["default"] or ""
    cells = (f"`--{flag['name']}` {flag['takes']}", flag["help"], default, *([", ".join(others)] if others else []))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def tables(text: str) -> str:
    """Returns a Markdown table for each group in the JSON."""
    head = "| flag | meaning | default | ds_config.json, Trainer |\n" + "|---" * 4 + "|\n"
    groups = json.loads(text)["groups"]
    return "\n".join(f"### {g['title']}\n\n{head}" + "\n".join(map(row, g["flags"])) + "\n" for g in groups)


def check_table(text: str) -> str:
    """Returns the JSON without the fields that only the documentation shows. Each line is a flag, a message with --NAME
    for the flags to which it applies, or a run of keys that accept the same values."""
    found = json.loads(text)
    flags = [flag for group in found["groups"] for flag in group["flags"]]
    for flag in flags:
        for field in ("help", "takes", "required", "ds_config"):
            del flag[field]
    parts = ['"flags": [\n' + ",\n".join(map(json.dumps, flags)) + "\n]"]
    unknown: dict[str, list[str]] = {}
    for name, message in found["unknown"].items():
        unknown.setdefault(message.replace(f"--{name}", "--NAME"), []).append(name)
    runs = groupby(found["ds_config"].items(), key=lambda item: item[1])
    keys = {" ".join(name for name, _ in run): accepted for accepted, run in runs}
    for name, entries in (("unknown", unknown), ("ds_config", keys)):
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())
        parts.append(f'"{name}": {{\n' + ",\n".join(lines) + "\n}")
    return "{" + ",\n".join(parts) + "}\n"


def command_flags(text: str) -> list[str]:
    """Returns the flags in a command's help. Ignores flags in the descriptions."""
    heads = [re.split(r"\s{2,}", line.strip())[0] for line in text.splitlines() if re.match(r"  (--|\w+ DIR)", line)]
    return sorted(set(re.findall(r"--\w+", " ".join(heads))))


def completion(text: str) -> str:
    """Returns the bash completion of commands, flags and choices. bash itself completes paths."""
    flags = [flag for group in json.loads(text)["groups"] for flag in group["flags"]]
    names = sorted(f"--{name}" for name in flag_names(text))
    own = {command: " ".join(command_flags(program_help(command, "--help"))) for command in COMMANDS}
    commands = "\n".join(
        f"    {command}) names{'+' if command == 'plan' else ''}='{' ' * (command == 'plan')}{flags}' ;;"
        for command, flags in own.items()
    )
    choices: dict[str, list[str]] = {}
    for flag in flags:
        if flag["type"] in KINDS:
            choices.setdefault(" ".join(flag.get("choices", ["true", "false"])), []).append(f"--{flag['name']}")
    cases = "\n".join(
        f"    {' | '.join(names)}) COMPREPLY=($(compgen -W '{words}' -- \"$word\")) ;;"
        for words, names in choices.items()
    )
    checkpoint = " ".join(re.findall(r"^  (\w+) \w+", program_help("checkpoint", "--help"), re.MULTILINE))
    models = " ".join(sorted(path.stem for path in (ROOT / "configs/models").glob("*.json")))
    return BASH.format(names=" ".join(names), commands=commands, cases=cases, checkpoint=checkpoint, models=models)


def main() -> None:
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    text = Path(sys.argv[1]).read_text(encoding="utf-8") if len(sys.argv) == 2 else program_help()
    TABLE.write_text(check_table(text), encoding="utf-8")
    COMPLETION.write_text(completion(text), encoding="utf-8")
    before, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
    DOCUMENT.write_text(before + BEGIN + "\n" + tables(text) + "\n" + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
