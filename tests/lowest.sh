#!/bin/sh
# Tests against the lowest versions that pyproject.toml allows, extras included: what it promises has to be true.
#   sh tests/lowest.sh                  what uses other packages: reports, telemetry, command line, notebooks
#   sh tests/lowest.sh tests/unit -x    only these tests (arguments are pytest's)
# Other packages' own dependencies are their newest: that is what an installation gets.
set -eu
cd "$(dirname "$0")/.."

venv=".venv-lowest"
lowest="build/lowest.txt"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --upgrade pip uv
mkdir -p build
uv() { "$venv/bin/uv" pip "$@" --quiet --python "$venv/bin/python"; }
uv compile --resolution lowest-direct --all-extras --output-file "$lowest" pyproject.toml >/dev/null
uv install --requirement "$lowest" --constraints "$lowest" --group pyproject.toml:dev
uv install --no-deps --editable .
grep -E '^[a-z].*==' "$lowest" | grep -E '^(click|psutil|opentelemetry-(sdk|exporter)|nvidia|matplotlib|pyarrow|pandas|ipython)'

if [ $# -eq 0 ]; then
    set -- -q tests/unit tests/contract tests/e2e/test_main_job.py tests/e2e/test_run_commands.py \
        tests/e2e/test_telemetry.py tests/e2e/test_spans_are_operations.py tests/e2e/test_compat_ipython.py \
        --ignore tests/unit/runtime/procfs/test_fuzz_parsers.py --ignore tests/unit/record/test_fuzz_records.py \
        --deselect tests/contract/test_deploy.py::test_published_schemas \
        --deselect tests/contract/test_release.py::test_published_schemas # its tool needs a newer Click
fi
# Old packages call what their dependencies have since deprecated.
PATH="$PWD/$venv/bin:$PATH" exec "$venv/bin/python" -m pytest -p no:cacheprovider -W ignore::DeprecationWarning "$@"
