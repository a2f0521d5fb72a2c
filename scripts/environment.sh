# Sourced by the scripts beside it: goes to the root of the checkout, makes .venv, installs what is pinned.
# No option to remember: a second call finds its stamp and returns in milliseconds.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

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
  .venv/bin/python -m pip install --disable-pip-version-check --require-hashes -r "requirements/$name.txt" >&2
  .venv/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e . >&2
  # As pip does for every other package: where PYTHONDONTWRITEBYTECODE is set, each `outbox run` would compile its 140
  # modules anew, 0.13 s of CPU.
  .venv/bin/python -m compileall -q outbox
  # Written last: an installation that was interrupted is done again. The other set is older than this one now.
  rm -f .venv/.installed-*
  printf '%s' "$stamp" > ".venv/.installed-$name"
  unlock_installation
}

# Two scripts started at once install one after the other, where the system has flock.
lock_installation() { command -v flock >/dev/null && exec 9>.venv.lock && flock 9; return 0; }
unlock_installation() { exec 9>&-; }

make_venv() {
  .venv/bin/python -c 'import pip' 2>/dev/null && return
  local python
  python=$(find_python)
  # Debian ships venv apart from Python.
  "$python" -c 'import ensurepip' 2>/dev/null || install_package python3-venv
  say "making .venv with $("$python" --version)"
  "$python" -m venv --clear .venv
}

# need_program PROGRAM PACKAGE: installs the Debian package where the program is missing.
need_program() { command -v "$1" >/dev/null || install_package "$2"; }

# As root with apt; anyone else is told what is missing.
install_package() {
  if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
    fail "The Debian package $1, or what it brings, is missing: apt-get install $1"
  fi
  say "installing the Debian package $1"
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >&2
}
