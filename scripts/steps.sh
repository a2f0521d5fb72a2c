# Sourced by scripts/check and scripts/test: named steps that all run, and a summary that fails if one did.

steps_told=()
steps_failed=0

# step NAME COMMAND... Exit codes that are told and are no failure: 3, the question could not be answered; 40, yes, but
# not at the first time.
step() {
  local name=$1 began=$SECONDS verdict=passed code=0
  shift
  say "== $name"
  "$@" || code=$?
  case $code in
    0) ;;
    3) verdict=UNKNOWN ;;
    40) verdict=UNSTEADY ;;
    *) verdict=FAILED; steps_failed=1 ;;
  esac
  steps_told+=("$(printf '%-7s %s (%s s)' "$verdict" "$name" "$((SECONDS - began))")")
}

# beside NAME COMMAND...: begins it; `ended NAME`, as a step later, waits for it and tells what it said. For what mostly
# waits for the network, while the cores do something else. It does not outlive the script.
beside() {
  local name=$1
  shift
  mkdir -p build
  set -m  # a process group of its own: what it started ends with it
  "$@" >"build/$name.log" 2>&1 &
  set +m
  beside_pid=$!
  trap 'kill -- "-$beside_pid" 2>/dev/null || true' EXIT
}

ended() {
  local code=0
  wait "$beside_pid" || code=$?
  trap - EXIT
  cat "build/$1.log" >&2
  return "$code"
}

check_source() {
  step "style" .venv/bin/ruff check .
  step "format" .venv/bin/ruff format --check .
  step "types" .venv/bin/mypy
  step "direction of imports" .venv/bin/lint-imports --no-logo
}

# pytest's own exit codes are not a step's: its 3 is an error inside of it, and must never read as UNKNOWN.
tested() { .venv/bin/pytest "$@" || return 1; }

nemesis_alone() {
  OUTBOX_TEST_SLOW=1 tested tests/acceptance/test_nemesis.py
}

# All tests, in processes that share the servers; what failed is asked once more, alone. On a busy machine a process that
# came late looks like a broken one: a test that passes the second time is named, because it is unsteady, and one that
# fails again is a failure. A test of a promise (`once`) gets no second time: one loss in two runs is a loss. Coverage is
# a run of its own (scripts/coverage): it doubles the time.
run_tests() {
  local last="--last-failed --last-failed-no-failures=none" promised=0 code=0
  .venv/bin/pytest -n "${OUTBOX_TEST_PROCESSES:-4}" --dist loadfile --no-loadscope-reorder --durations 30 "$@" || code=$?
  [[ $code == 0 ]] && return 0
  # 1: some tests failed, and which ones is written down. Anything else broke the run itself.
  [[ $code == 1 ]] || { say "pytest ended with $code: that is no verdict of a test."; return 1; }
  # shellcheck disable=SC2086
  .venv/bin/pytest $last -m once --collect-only -q "$@" >/dev/null 2>&1 && promised=1
  say "== once more: the tests that failed. Whatever passes now is unsteady on this machine; see the names below"
  # shellcheck disable=SC2086
  tested $last -v "$@" || return 1
  [[ $promised == 0 ]] || { say "A promise was broken the first time: that counts, whatever the second time says."; return 1; }
  return 40
}

report_steps() {
  say "== summary"
  printf '%s\n' "${steps_told[@]}" >&2
  return "$steps_failed"
}
