# Sourced by the other scripts: goes to the root of the checkout, makes .venv, installs the pinned packages.
# A second call finds its stamp and returns in milliseconds.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A proxy of the environment is for pip and Maven; servers on this machine are reached without it.
export no_proxy="${no_proxy:-${NO_PROXY:-}},localhost,127.0.0.1,::1"
export NO_PROXY=$no_proxy

# Containers often set it. Then each process of the tests would compile all tests again.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$*" >&2; }

fail() { say "$*"; exit 1; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  fail "Python 3.11 or later is needed; set PYTHON to one if it is not on the PATH."
}

# install_pinned run|dev: the packages of requirements/NAME.txt by hash, then this checkout.
install_pinned() {
  local name=$1 stamp
  stamp=$(cat "requirements/$name.txt" requirements/build.in pyproject.toml | cksum)" $PWD"
  [[ $(cat ".venv/.installed-$name" 2>/dev/null) == "$stamp" ]] && return
  lock_installation
  make_venv
  say "installing the packages of requirements/$name.txt (once; minutes on a slow network)"
  # The lists are complete, so pip need not resolve dependencies; and pip compiles on one core only. 51 s of CPU on two
  # cores instead of 58 on one.
  pip_install "$(grep -c '^[a-z].*==' "requirements/$name.txt")" --no-deps --no-compile --require-hashes -r "requirements/$name.txt"
  pip_install 1 --no-deps --no-build-isolation -e .
  # Ours too: with PYTHONDONTWRITEBYTECODE each `outbox run` would compile its 140 modules again, 0.13 s of CPU. Some
  # packages contain templates that are not Python; what is left out here, 6 s of CPU, no test imports.
  .venv/bin/python -m compileall -qq -j 0 -x '/(pip|setuptools|pkg_resources|mypy|mypyc|pygments/lexers)/' .venv/lib outbox || true
  # Written last: an interrupted installation is repeated. The other set is outdated now.
  rm -f .venv/.installed-*
  printf '%s' "$stamp" > ".venv/.installed-$name"
  unlock_installation
}

# Two scripts that start at once install one after the other, if the system has flock.
lock_installation() { command -v flock >/dev/null && exec 9>.venv.lock && flock 9; return 0; }
unlock_installation() { exec 9>&-; }

make_venv() {
  .venv/bin/python -c 'import pip' 2>/dev/null && return
  local python
  python=$(find_python)
  need_venv
  install_missing
  say "making .venv with $("$python" --version)"
  "$python" -m venv --clear .venv
}

# pip_install TOTAL ARGUMENT...: shows the progress of pip. Its output is kept, and shown if it fails.
pip_install() {
  local total=$1 log=.venv/pip.log code=0
  shift
  (
    set -o pipefail
    .venv/bin/python -m pip install --disable-pip-version-check --no-color --progress-bar off "$@" 2>&1 |
      tee "$log" | show_packages "$total"
  ) || code=$?
  [[ $code == 0 ]] && return
  cat "$log" >&2
  fail "pip failed with exit code $code; its output is above."
}

# One rewritten line on a terminal; elsewhere a line per quarter, and none for a few packages.
show_packages() {
  local total=$1 line done=0 quarter=0 drawn=0
  [[ -t 2 && ${TERM:-dumb} != dumb ]] && drawn=1
  while IFS= read -r line; do
    [[ $line == Collecting* || $line == "Requirement already"* ]] && done=$((done < total ? done + 1 : total))
    if [[ $drawn == 1 && $line == Collecting* ]]; then
      printf '\r\033[Kinstalling packages: %d of %d' "$done" "$total" >&2
    elif [[ $drawn == 1 && $line == Installing* ]]; then
      printf '\r\033[Kinstalling packages: all %d downloaded, unpacking' "$total" >&2
    elif [[ $drawn == 0 && $total -gt 8 && $((done * 4 / total)) -gt $quarter ]]; then
      quarter=$((done * 4 / total))
      say "installing packages: $done of $total"
    fi
  done
  [[ $drawn == 0 ]] || printf '\r\033[K' >&2
}

# need_program PROGRAM PACKAGE: notes the Debian package if the program is missing; `install_missing` installs all.
missing_packages=()
need_program() { command -v "$1" >/dev/null || missing_packages+=("$2"); }

# need_file PATTERN PACKAGE: the same by a file.
need_file() { compgen -G "$1" >/dev/null || missing_packages+=("$2"); }

# Debian ships venv separately from Python.
need_venv() {
  .venv/bin/python -c 'import pip' 2>/dev/null && return
  local python
  python=$(find_python) || exit
  "$python" -c 'import ensurepip' 2>/dev/null || missing_packages+=(python3-venv)
}

install_missing() { [[ ${#missing_packages[@]} -eq 0 ]] || install_package "${missing_packages[@]}"; missing_packages=(); }

# As root with apt; other users get one message that names every package.
install_package() {
  if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
    fail "Missing programs. On Debian, as root: apt-get install $*"
  fi
  say "installing the Debian packages $*"
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}
