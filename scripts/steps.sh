# Sourced by scripts/check and scripts/test: named steps that all run, and a summary that fails if one did.

steps_told=()
steps_failed=0

# step NAME COMMAND... Exit code 3, the question could not be answered, is reported and is no failure.
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

check_quickly() {
  step "style" .venv/bin/ruff check .
  step "format" .venv/bin/ruff format --check .
  step "direction of imports" .venv/bin/lint-imports --no-logo
}

check_source() {
  check_quickly
  step "types" .venv/bin/mypy
}

# How all tests are run: processes that share the servers, a file in one of them. One that dies is replaced, four times
# at most; tests/fixtures/dispatch.py hands out the rest. tests/acceptance/test_hanging_tests.py tries the same options.
test_options=(-n "${OUTBOX_TEST_PROCESSES:-4}" --dist loadfile --no-loadscope-reorder --max-worker-restart 4)

# The machines that the tests meet, by OUTBOX_TEST_MACHINE: `young`, which is the default, was started a minute ago;
# `busy` has two CPU-bound processes beside all of them; `young busy` is both; `plain` is the machine as it is. Tests with
# the mark `busy` (tests/fixtures/burners.py) and a clock that is set back (tests/acceptance/test_clock_set_back.py) are
# in every run.
is_wanted() { [[ " ${OUTBOX_TEST_MACHINE:-young} " == *" $1 "* ]]; }

# Sets `young` to what a command is begun with so that its clocks since the start of the machine are at 60 s: a time
# namespace, which root may make where the kernel has them. No --fork: the namespace is for its children.
find_young() {
  young=()
  local up=0 monotonic boottime
  is_wanted young || return 0
  read -r up monotonic boottime < <(.venv/bin/python -c "$offsets" 2>/dev/null) || true
  [[ $up -gt 60 ]] || return 0
  young=(unshare --time --monotonic "$monotonic" --boottime "$boottime")
  "${young[@]}" true 2>/dev/null && return 0
  young=()
  say "No time namespace may be made here: the tests meet a machine of its real age, $((up / 60)) min."
}

# The age of the machine, and what to add to both clocks. The kernel counts that from the clocks outside of all
# namespaces: what this one has added already is part of it. A machine that slept has two different clocks.
offsets='
import pathlib, time
rows = map(str.split, pathlib.Path("/proc/self/timens_offsets").read_text().splitlines())
added = {name: int(seconds) for name, seconds, _ in rows}
now = {"monotonic": time.monotonic(), "boottime": time.clock_gettime(time.CLOCK_BOOTTIME)}
print(int(now["boottime"]), *(added[name] + 60 - int(clock) for name, clock in now.items()))
'

# busy COMMAND...: with two CPU-bound processes beside it, which end with this script whatever happens to it.
busy() {
  local code=0 burners=()
  for _ in 1 2; do
    (while kill -0 $$ 2>/dev/null; do for _ in {1..200000}; do :; done; done) &
    burners+=($!)
  done
  "$@" || code=$?
  kill "${burners[@]}"
  wait "${burners[@]}" 2>/dev/null || true
  return "$code"
}

# tested ARGUMENT...: pytest, with a limit for the whole run. At the limit it prints the stacks of all its processes and a
# summary (tests/fixtures/limits.py); a minute and a half later it is killed. In the foreground, so that Ctrl-C reaches it.
# Where the system has no `timeout` (macOS), only the limits of the tests hold.
# pytest's own exit codes are not a step's: its 3 is an error inside of it, and must never read as UNKNOWN.
tested() {
  local code=0 limit=${OUTBOX_TEST_LIMIT_SECONDS:-3600} young load=() limited=()
  find_young
  is_wanted busy && load=(busy)
  command -v timeout >/dev/null && limited=(timeout --foreground --signal TERM --kill-after 90 "$limit")
  # Spelled for bash before 4.4, which takes an empty array for an unset variable.
  ${load[@]+"${load[@]}"} ${young[@]+"${young[@]}"} ${limited[@]+"${limited[@]}"} .venv/bin/pytest "$@" || code=$?
  case $code in
    0) return 0 ;;
    1) ;;
    124) say "The tests did not end within $limit s (OUTBOX_TEST_LIMIT_SECONDS): that is a failure." ;;
    137) say "The tests were killed: after $limit s (OUTBOX_TEST_LIMIT_SECONDS), or by the system for want of memory." ;;
    *) say "pytest ended with $code: that is no verdict of a test." ;;
  esac
  return 1
}

nemesis_alone() {
  OUTBOX_TEST_SLOW=1 tested tests/acceptance/test_nemesis.py
}

# No test has a second try: one that fails once in ten runs is a defect. Coverage is a run of its own (scripts/coverage).
run_tests() {
  tested "${test_options[@]}" --durations 30 "$@"
}

report_steps() {
  say "== summary"
  printf '%s\n' "${steps_told[@]}" >&2
  return "$steps_failed"
}
