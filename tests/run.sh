#!/bin/sh
# Installs what the tests need and runs all of them, against the wheel as a user would install it.
#   sh tests/run.sh                 lint, types, layers, then every test
#   sh tests/run.sh tests/unit -k x only these tests (arguments are pytest's)
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)

say() { printf '\n== %s\n' "$*"; }

debian_packages() {
    command -v apt-get >/dev/null || return 0
    missing=""
    command -v promtool >/dev/null || missing="$missing prometheus"
    command -v cc >/dev/null || missing="$missing gcc libc6-dev"
    command -v make >/dev/null || missing="$missing make"
    command -v node >/dev/null || missing="$missing nodejs npm"
    command -v openssl >/dev/null || missing="$missing openssl"
    command -v perf >/dev/null || missing="$missing linux-perf"
    command -v unshare >/dev/null || missing="$missing util-linux"
    command -v shellcheck >/dev/null || missing="$missing shellcheck"
    python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
    [ -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] || missing="$missing python3-dev"
    [ -n "$missing" ] || return 0
    say "Debian packages:$missing"
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo"
    $as_root apt-get update -qq
    # The tests start a Prometheus of their own: the package's service is not wanted.
    # shellcheck disable=SC2086  # a list of words
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# A virtual environment with the wheel and the test tools, for one interpreter; all in one resolution.
environment() {
    [ -x "$2/bin/python" ] || "$1" -m venv "$2"
    "$2/bin/python" -m pip install --quiet --upgrade pip
    rm -rf "$root"/build/wheel "$root"/build/lib* "$root"/build/temp*
    "$2/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$root/build/wheel" "$root"
    "$2/bin/python" -m pip uninstall --quiet --yes otel-memwatch
    "$2/bin/python" -m pip install --quiet --group "$root/pyproject.toml:dev" "$root"/build/wheel/*.whl
}

# The tests run in a folder without the sources: what is imported is the installed wheel.
stage="$root/build/stage"
stage_tests() {
    rm -rf "$stage"
    mkdir -p "$stage"
    for part in tests pyproject.toml README.md CHANGELOG.md dashboards deploy; do
        [ ! -e "$part" ] || cp -r "$part" "$stage"
    done
}

# run_tests ENVIRONMENT [PYTEST ARGUMENTS]
run_tests() {
    bin="$1/bin"
    shift
    (cd "$stage" && PATH="$bin:$PATH" "$bin/python" -m pytest -p no:cacheprovider "$@")
}

debian_packages
venv="$root/.venv-test"
say "virtual environment"
environment python3 "$venv"
stage_tests

if [ $# -gt 0 ]; then
    run_tests "$venv" "$@"
    exit
fi

say "lint, types, layers"
"$venv/bin/ruff" check .
"$venv/bin/ruff" format --check .
"$venv/bin/mypy"
PATH="$venv/bin:$PATH" "$venv/bin/lint-imports"

say "all tests, $("$venv/bin/python" --version)"
run_tests "$venv"

say "operations, as installed without a compiler"
rm -f "$venv"/lib/python*/site-packages/otel_memwatch/in_target/operations/_boundary.*.so
MEMWATCH_PLAIN=1 run_tests "$venv" -q tests/unit/test_operation*.py tests/e2e/test_operation*.py tests/e2e/test_spans_*.py

for version in 3.10 3.11 3.12 3.13 3.14; do
    for python in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
        command -v "$python" >/dev/null || continue
        "$python" -c 'import ensurepip' 2>/dev/null || continue
        [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = "$version" ] || continue
        [ "$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" != "$version" ] || continue
        say "core tests, $("$python" --version)"
        environment "$python" "$venv-$version"
        run_tests "$venv-$version" -q tests/unit tests/e2e/test_main_job.py
        break
    done
done
