# Sourced by scripts/check and scripts/test: named steps that all run, and a summary that fails if one did.

step_lines=()
steps_failed=0

# step NAME COMMAND... Exit code 3 (UNKNOWN) is reported and is not a failure.
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
  step_lines+=("$(printf '%-7s %s (%s s)' "$verdict" "$name" "$((SECONDS - began))")")
}

# beside NAME COMMAND...: starts it in the background; `ended NAME`, as a later step, waits for it and prints its output. It does
# not outlive the script.
beside() {
  local name=$1
  shift
  mkdir -p build
  set -m  # its own process group: its children end with it
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
  # Fails only for what is older by a release: a change of the program must not need a new half-hour nemesis run to be merged.
  step "age of the evidence" .venv/bin/python scripts/evidence.py
}

check_source() {
  check_quickly
  step "types" .venv/bin/mypy
}

# How all tests are run: processes that share the servers, each file in one of them. A process that dies is replaced, at
# most four times; tests/fixtures/dispatch.py distributes the rest. tests/acceptance/test_hanging_tests.py uses the same
# options.
test_options=(-n "${OUTBOX_TEST_PROCESSES:-4}" --dist loadfile --no-loadscope-reorder --max-worker-restart 4)

# The simulated machine, by OUTBOX_TEST_MACHINE: `young` (the default) was started a minute ago; `busy` has two CPU-bound
# processes in addition; `young busy` is both; `plain` is the real machine. Some tests with the mark `busy`
# (tests/fixtures/burners.py) and with a clock that is set back (tests/acceptance/test_clock_set_back.py) are in every run.
is_wanted() { [[ " ${OUTBOX_TEST_MACHINE:-young} " == *" $1 "* ]]; }

# Sets `young` to the prefix of a command that sets its clocks since boot to 60 s: a time namespace, which root may create
# if the kernel has them. No --fork: the namespace is for its children.
find_young() {
  young=()
  local up=0 monotonic boottime
  is_wanted young || return 0
  read -r up monotonic boottime < <(.venv/bin/python -c "$offsets" 2>/dev/null) || true
  [[ $up -gt 60 ]] || return 0
  young=(unshare --time --monotonic "$monotonic" --boottime "$boottime")
  "${young[@]}" true 2>/dev/null && return 0
  young=()
  say "No time namespace can be created here: the tests see the real uptime, $((up / 60)) min."
}

# The uptime, and what to add to both clocks. The kernel counts that from the clocks outside of all namespaces, including
# what this namespace has already added. On a machine that was suspended the two clocks differ.
offsets='
import pathlib, time
rows = map(str.split, pathlib.Path("/proc/self/timens_offsets").read_text().splitlines())
added = {name: int(seconds) for name, seconds, _ in rows}
now = {"monotonic": time.monotonic(), "boottime": time.clock_gettime(time.CLOCK_BOOTTIME)}
print(int(now["boottime"]), *(added[name] + 60 - int(clock) for name, clock in now.items()))
'

# busy COMMAND...: with two CPU-bound processes in parallel, which end with this script in any case.
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
# summary (tests/fixtures/limits.py); 90 s later it is killed. In the foreground, so that Ctrl-C reaches it. Without the
# program `timeout` (macOS) only the limits of the tests apply.
# pytest's exit codes differ from a step's: its 3 is an internal error and must not count as UNKNOWN.
tested() {
  local code=0 limit=${OUTBOX_TEST_LIMIT_SECONDS:-3600} young load=() limited=()
  find_young
  is_wanted busy && load=(busy)
  command -v timeout >/dev/null && limited=(timeout --foreground --signal TERM --kill-after 90 "$limit")
  # Written for bash before 4.4, which treats an empty array as an unset variable.
  ${load[@]+"${load[@]}"} ${young[@]+"${young[@]}"} ${limited[@]+"${limited[@]}"} .venv/bin/pytest "$@" || code=$?
  case $code in
    0) return 0 ;;
    1) ;;
    124) say "The tests did not end within $limit s (OUTBOX_TEST_LIMIT_SECONDS)." ;;
    137) say "The tests were killed: after $limit s (OUTBOX_TEST_LIMIT_SECONDS), or by the system because of low memory." ;;
    *) say "pytest ended with $code, so there is no verdict." ;;
  esac
  return 1
}

nemesis_alone() {
  local seed=${OUTBOX_TEST_SEED:-$(date -u +%Y%m%d)}
  say "the seed of the day: scripts/nemesis --wide --source table --seed $seed"
  OUTBOX_TEST_SEED=$seed OUTBOX_TEST_SLOW=1 tested tests/acceptance/test_nemesis.py
}

# No test is retried: one that fails once in ten runs is a defect. Coverage is a separate run (scripts/coverage).
run_tests() {
  tested "${test_options[@]}" --durations 30 "$@"
}

# What meets a search server's replies, once more on OpenSearch 2, with a server of its own: in the quick run the replies
# themselves, with --all also what is built on them. scripts/compat runs more files on every search server.
on_opensearch=(
  tests/contract/test_sink.py
  tests/integration/test_{bulk,elasticsearch_replies,newer_deletes,product}.py
)
[[ ${OUTBOX_TEST_ALL:-} != 1 ]] || on_opensearch+=(
  tests/integration/test_{bad_input,rebuild,red_shard,refresh,repair,several_nodes,verify}.py
  tests/acceptance/test_secured_opensearch.py
)
# Two processes: another one costs more to start than these few files take.
run_tests_on_opensearch() {
  OUTBOX_TEST_PRODUCT=opensearch-2 tested "${test_options[@]}" -n 2 --durations 10 "$@"
}

# Sets cpu_seconds to user + sys of this script and of all that it has waited for. Unlike the minutes it does not depend on what
# else the machine does. `times` in a pipe would be the pipe's own.
cpu_seconds=0
measure_cpu() {
  local file
  file=$(mktemp)
  times >"$file"
  cpu_seconds=$(awk -F '[ ms]+' '{ sum += ($1 + $3) * 60 + $2 + $4 } END { printf "%d", sum }' "$file")
  rm "$file"
}

report_steps() {
  measure_cpu
  say "== summary"
  printf '%s\n' "${step_lines[@]}" >&2
  say "took $((SECONDS / 60)) min $((SECONDS % 60)) s, $((cpu_seconds / 60)).$((cpu_seconds % 60 / 6)) min of CPU"
  return "$steps_failed"
}

# For the record of a whole run each run of pytest adds a line with its counts.
begin_tallies() {
  mkdir -p build
  export OUTBOX_TEST_TALLY=$PWD/build/tallies.jsonl
  rm -f "$OUTBOX_TEST_TALLY"
}

record_whole_run() {
  .venv/bin/python scripts/whole_run.py "$OUTBOX_TEST_TALLY" "$SECONDS" "$cpu_seconds" "${step_lines[@]}"
}
