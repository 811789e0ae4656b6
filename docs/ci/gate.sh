#!/usr/bin/env bash
# Run the gate on kernels of another repository. Read from the environment:
#   BACKENDS   what to judge, divided by blanks; files are looked for in WORKSPACE
#   WORKSPACE  root of the kernels' repository (default: GITHUB_WORKSPACE, then CI_PROJECT_DIR, then .)
#   SESSION PROFILE DEVICE SEED CASES OPTIONS BASE BUILD REPORT_DIR ENVIRONMENT   as in action.yml
# Exit status: that of the suite, 0 passed, 1 failed, 2 bad usage or nothing was checked.
set -euo pipefail

gate="$(cd "$(dirname "$0")/../.." && pwd)"
workspace="$(cd "${WORKSPACE:-${GITHUB_WORKSPACE:-${CI_PROJECT_DIR:-.}}}" && pwd)"

absolute() { # a path in the workspace, or the word as it is
  if [ -e "$workspace/${1%%:*}" ]; then echo "$workspace/$1"; else echo "$1"; fi
}

report="${REPORT_DIR:-gate-report}"
case "$report" in /*) ;; *) report="$workspace/$report" ;; esac
if [ -n "${GITHUB_OUTPUT:-}" ]; then echo "report-dir=$report" >> "$GITHUB_OUTPUT"; fi

set -f # blanks divide, and nothing else is special
backends=()
for backend in ${BACKENDS:?nothing to judge}; do
  backends+=(--backend "$(absolute "$backend")")
done
common=("${backends[@]}" --device "${DEVICE:-cpu}" --seed "${SEED:-0}")
options=("${common[@]}" --profile "${PROFILE:-smoke}" --report-dir "$report")
if [ -n "${CASES:-}" ]; then
  options+=(--cases)
  for case in $CASES; do options+=("$(absolute "$case")"); done
fi
set +f
if [ -n "${OPTIONS:-}" ]; then
  while IFS= read -r -d '' word; do options+=("$word"); done < <(
    printf '%s' "$OPTIONS" | xargs printf '%s\0'
  )
fi

nox=(python -m nox)
if [ "${ENVIRONMENT:-own}" = at-hand ]; then nox+=(--no-venv); fi
# Modules of the kernels' repository can be imported without being installed.
export PYTHONPATH="$workspace${PYTHONPATH:+:$PYTHONPATH}"
cd "$gate"

status=0
"${nox[@]}" -s "${SESSION:-gate}" -- "${options[@]}" || status=$?
if [ -n "${BASE:-}" ]; then
  compared=0
  # In a container the checkout may belong to another user, which git wants to be told is meant.
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0="$workspace"
  "${nox[@]}" -s regress -- --base "$BASE" --tree "$workspace" --build "${BUILD:-}" \
    "${common[@]}" --report-dir "$report/regress" || compared=$?
  if [ "$status" -eq 0 ]; then status=$compared; fi
fi
exit "$status"
