#!/usr/bin/env bash
# Runs all tests: ./test.sh [--quick] [--tidy]
#
# Installs dependencies, builds, and runs the C++ tests (ctest), the Python tests (pytest), linters and formatters.
#   --quick  skip end-to-end training and the virtual Slurm cluster
#   --tidy   run clang-tidy on sources (not tests) changed since origin/main, or on all sources if that branch is missing
# The last line counts tests: N passed, N failed, N skipped.
set -uo pipefail

MPZERO_ROOT=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
cd "$MPZERO_ROOT" || exit
for part in common install build environment; do
  # shellcheck source=/dev/null
  source "scripts/$part.sh"
done

run_long() { "$@"; }
end_with() { exit "$1"; }

quick=false
tidy=false
for argument in "$@"; do
  case $argument in
    --quick) quick=true ;;
    --tidy) tidy=true ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) die "'$argument' is not a flag of test.sh; use --quick or --tidy." ;;
  esac
done

passed=0
failed=0
skipped=0
failures=()

# check NAME COMMAND...: runs one check, and shows its output if it fails.
check() {
  local name=$1 output
  shift
  if output=$("$@" 2>&1 </dev/null); then
    passed=$((passed + 1))
    say "passed: $name"
  else
    failed=$((failed + 1))
    failures+=("$name")
    printf '%s\n' "$output"
    say "FAILED: $name"
  fi
}

# count_results FILE NAME STATUS: adds the results in a JUnit file. A missing file, or a nonzero status without failed tests (a crash, a
# collection error), counts as one failure.
count_results() {
  local numbers
  if ! numbers=$(python3 scripts/count_tests.py "$1"); then numbers="0 1 0 $2"; fi
  local -a fields
  read -r -a fields <<<"$numbers"
  if (($3 != 0 && fields[1] == 0)); then fields=("${fields[0]}" 1 "${fields[2]}" "$2 (exit status $3)"); fi
  passed=$((passed + fields[0]))
  failed=$((failed + fields[1]))
  skipped=$((skipped + fields[2]))
  failures+=("${fields[@]:3}")
}

tracked() { git ls-files -- "$@"; }
each_tracked() {
  local -a files
  mapfile -t files < <(tracked "${@:2}")
  ((${#files[@]} == 0)) || $1 "${files[@]}"
}

clang_format() { .venv/bin/clang-format --dry-run -Werror "$@"; }
shell_scripts() {
  local -a files
  mapfile -t files < <({ tracked '*.sh' '*.sbatch'; git grep -lI -m1 -E '^#!.*\b(ba)?sh\b' -- .ci .githooks container kubernetes ':!*.py' 2>/dev/null; } | sort -u)
  .venv/bin/shellcheck "${files[@]}"
}
presets() {
  PATH=$MPZERO_VENV/bin:$PATH cmake --list-presets=all >/dev/null &&
    python3 -c 'import json; [p["name"] for p in json.load(open("CMakePresets.json"))["configurePresets"]]'
}
lock_file() {
  local uv
  install_uv && uv=$(find_uv) && "$uv" lock --check
}
clang_tidy() {
  local -a files
  local base="" sources=('app/*.cpp' 'base/*.cpp' 'bench/*.cpp' 'io/*.cpp' 'model/*.cpp' 'parallel/*.cpp')
  base=$(git merge-base HEAD origin/main 2>/dev/null) || true
  if [[ -n $base ]]; then
    mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- "${sources[@]}")
  else
    mapfile -t files < <(tracked "${sources[@]}")
  fi
  ((${#files[@]} == 0)) || printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(build_jobs)" .venv/bin/clang-tidy --quiet -p "$MPZERO_BUILD"
}

# Twice the cores, but at most 8: tests often wait for ranks, signals or a scheduler.
test_workers() {
  local cores
  cores=$(nproc)
  echo $((cores < 4 ? 2 * cores : 8))
}

mkdir -p logs
install_packages "${MPZERO_BUILD_PACKAGES[@]}" "${MPZERO_TEST_PACKAGES[@]}"
if [[ $quick == false ]] && install_rights >/dev/null && command -v apt-get >/dev/null; then
  (install_packages "${MPZERO_SLURM_PACKAGES[@]}") || warn "Slurm could not be installed: its tests are skipped."
fi
sync_environment cuda dev interop

check "clang-format" each_tracked clang_format '*.cpp' '*.hpp' '*.cu' '*.cuh'
check "ruff check" .venv/bin/ruff check --quiet .
check "ruff format" .venv/bin/ruff format --check --quiet --diff .
check "shellcheck" shell_scripts
check "CMake presets" presets
check "uv.lock is up to date" lock_file

export BUILD_DIR=$MPZERO_BUILD
set_rank_environment 2 "$(nproc)" 0
unset OMP_NUM_THREADS
if (build_programs on "$(visible_gpus)"); then
  passed=$((passed + 1))
  exclude=()
  [[ $quick == false ]] || exclude=(-LE e2e)
  rm -f "$MPZERO_BUILD/ctest.xml" "$MPZERO_BUILD/pytest.xml"
  .venv/bin/ctest --test-dir "$MPZERO_BUILD" --parallel "$(nproc)" --output-on-failure --no-tests=error \
    --output-junit "$MPZERO_BUILD/ctest.xml" "${exclude[@]}" </dev/null
  count_results "$MPZERO_BUILD/ctest.xml" ctest $?
  [[ $tidy == false ]] || check "clang-tidy" clang_tidy
  exclude=()
  [[ $quick == false ]] || exclude=(-m "not slurm and not e2e")
  # Tests often wait for ranks, signals or a scheduler. With GPUs, tests run sequentially, because some tests measure GPU memory.
  workers=()
  (($(visible_gpus) > 0)) || workers=(-n "$(test_workers)" --no-loadscope-reorder)
  .venv/bin/pytest -q "${workers[@]}" --durations=10 --junitxml "$MPZERO_BUILD/pytest.xml" "${exclude[@]}" </dev/null
  count_results "$MPZERO_BUILD/pytest.xml" pytest $?
else
  failed=$((failed + 1))
  failures+=("build")
fi

((failed == 0)) || printf '\nFailed: %s\n' "${failures[*]}"
printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
((failed == 0))
