# Sourced by scripts/audit and scripts/sbom: their tools in .venv-supply, pinned by hash, separate from our own packages.

supply_tools() {
  local stamp
  stamp=$(cksum < requirements/supply.txt)" $PWD"
  [[ $(cat .venv-supply/.installed 2>/dev/null) == "$stamp" ]] && return
  say "installing the packages of requirements/supply.txt (once)"
  "$(find_python)" -m venv --clear .venv-supply
  .venv-supply/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --no-compile --require-hashes -r requirements/supply.txt >&2
  printf '%s' "$stamp" > .venv-supply/.installed
}
