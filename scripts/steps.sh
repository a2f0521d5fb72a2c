# Sourced by scripts/check and scripts/test: named steps that all run, and a summary that fails if one did.

steps_told=()
steps_failed=0

# step NAME COMMAND... An exit code of 3 means that the question could not be answered: told, and not a failure.
step() {
  local name=$1 began=$SECONDS verdict=passed code=0
  shift
  say "== $name"
  "$@" || code=$?
  case $code in
    0) ;;
    3) verdict=UNKNOWN ;;
    *) verdict=FAILED; steps_failed=1 ;;
  esac
  steps_told+=("$(printf '%-7s %s (%s s)' "$verdict" "$name" "$((SECONDS - began))")")
}

check_source() {
  step "style" .venv/bin/ruff check .
  step "format" .venv/bin/ruff format --check .
  step "types" .venv/bin/mypy
  step "direction of imports" .venv/bin/lint-imports --no-logo
}

# All tests, in two processes that share the servers; what failed is asked once more, alone. On a busy machine a process
# that came late looks like a broken one: a test that passes the second time is named, because it is unsteady, and one
# that fails again is a failure. Coverage is a run of its own (scripts/coverage): it doubles the time.
nemesis_alone() {
  OUTBOX_TEST_SLOW=1 .venv/bin/pytest tests/acceptance/test_nemesis.py
}

run_tests() {
  .venv/bin/pytest -n "${OUTBOX_TEST_PROCESSES:-2}" --dist loadfile --no-loadscope-reorder "$@" && return 0
  say "== once more: the tests that failed. Whatever passes now is unsteady on this machine; see the names below"
  .venv/bin/pytest --last-failed --last-failed-no-failures=none -v "$@"
}

report_steps() {
  say "== summary"
  printf '%s\n' "${steps_told[@]}" >&2
  return "$steps_failed"
}
