#!/usr/bin/env bash
# The guide's database on localhost:5435 (wordloom_dev, wordloom_test), migrated: by Docker Compose if it runs, else the
# embedded PostgreSQL in the background. `stop` ends it. DEVTEST_DB_PORT is another port for the embedded one.
set -euo pipefail
. "$(dirname "$0")/environment.sh"

port=${DEVTEST_DB_PORT:-5435}
log=build/devtest/$port.log pid=build/devtest/$port.pid

if [[ ${1:-} == stop ]]; then
  if [[ -e $pid ]]; then kill "$(cat "$pid")"; rm -f "$pid"; else docker compose -f docker-compose.infra.yml stop db; fi
  exit
fi
if [[ -e .venv/.installed-dev ]]; then install_pinned dev; else install_pinned run; fi

if [[ -z ${DEVTEST_DB_PORT:-} ]] && docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
  docker compose -f docker-compose.infra.yml up -d --wait db
  for name in wordloom_dev wordloom_test; do
    DATABASE_URL=postgresql://wordloom:wordloom@localhost:5435/$name .venv/bin/outbox migrate
  done
  exit
fi

mkdir -p build/devtest
nohup .venv/bin/python -m labs.devtest "$port" >"$log" 2>&1 &
echo $! >"$pid"
for _ in $(seq 600); do
  grep -q wordloom_test "$log" && { cat "$log"; exit; }
  kill -0 "$(cat "$pid")" 2>/dev/null || { rm -f "$pid"; cat "$log" >&2; exit 1; }
  sleep 0.1
done
fail "PostgreSQL did not start within a minute; see $log"
