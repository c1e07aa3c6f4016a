# shellcheck shell=bash
# What every script of this folder builds on. The caller sets MPZERO_ROOT, the checkout, before it sources anything.

MPZERO_ROOT=${MPZERO_ROOT:?set it to the checkout before sourcing scripts/common.sh}
MPZERO_BUILD=${BUILD_DIR:-$MPZERO_ROOT/build} # a complete path
MPZERO_VENV=$MPZERO_ROOT/.venv

# A user's mistake ends a script with the exit status that mpzero itself uses for it (base/error.hpp).
readonly MPZERO_USER_ERROR=2

say() { printf 'mpzero: %s\n' "$*"; }
warn() { printf 'mpzero: warning: %s\n' "$*" >&2; }
die() {
  printf 'mpzero: error: %s\n' "$*" >&2
  exit "$MPZERO_USER_ERROR"
}

# positive_number_or TEXT DEFAULT: TEXT where it is a whole number above zero, else DEFAULT.
positive_number_or() {
  if [[ ${1:-} =~ ^[1-9][0-9]*$ ]]; then printf '%s\n' "$1"; else printf '%s\n' "$2"; fi
}

# require_number VARIABLE LEAST: ends the script unless the variable is unset, empty or a whole number of at least LEAST.
require_number() {
  local value=${!1:-}
  [[ -z $value ]] || { [[ $value =~ ^[0-9]+$ ]] && ((10#$value >= $2)); } ||
    die "$1=$value is not a whole number of at least $2; set it to one or leave it unset."
}

# A path as the user will want to read and type it: relative to the checkout where it lies inside.
shown_path() { printf '%s\n' "${1#"$MPZERO_ROOT"/}"; }
