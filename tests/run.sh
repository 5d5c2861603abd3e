#!/bin/sh
# Installs what the tests need and runs them, against the wheel as a user would install it.
#   sh tests/run.sh                 lint, types, layers, then every test on this Python
#   sh tests/run.sh more            the thorough tests, which repeat in large what others prove in small; costs beside the last release
#   sh tests/run.sh all             also these, the long profiles, the other Pythons, the lowest versions, frameworks, coverage
#   sh tests/run.sh coverage        how much of the package the unit tests run
#   sh tests/run.sh PART            one more part of `all`: costs, plain, pythons, lowest, frameworks, engines, long, machines
#                                   or processors (the unit tests as on machines with 1 to 256 processors, the others as with 4)
#   sh tests/run.sh tests/unit -k x only these tests (arguments are pytest's)
# OTEL_MEMWATCH_TEST_STATE is the folder that keeps the names of retried tests for the next run (default ~/.cache/otel-memwatch-tests).
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)
venv="$root/.venv-test"
stage="$root/build/stage"
results="$root/build/results"
cache="$root/build/pytest-cache"
log="$root/build/pytest.log"
status="$root/build/pytest.status"
retried="${OTEL_MEMWATCH_TEST_STATE:-$HOME/.cache/otel-memwatch-tests}"
may_fail=no
mkdir -p "$root/build"
: >"$results"

say() { printf '\n== %s\n' "$*"; }

debian_packages() {
    command -v apt-get >/dev/null || return 0
    missing=""
    command -v promtool >/dev/null || missing="$missing prometheus"
    command -v cc >/dev/null || missing="$missing gcc libc6-dev"
    command -v make >/dev/null || missing="$missing make"
    command -v node >/dev/null || missing="$missing nodejs npm"
    command -v openssl >/dev/null || missing="$missing openssl"
    command -v chromium >/dev/null || missing="$missing chromium fonts-dejavu-core"
    command -v mpirun >/dev/null || missing="$missing openmpi-bin"
    command -v perf >/dev/null || missing="$missing linux-perf"
    command -v unshare >/dev/null || missing="$missing util-linux"
    command -v groff >/dev/null || missing="$missing groff-base"
    command -v shellcheck >/dev/null || missing="$missing shellcheck"
    command -v eu-stack >/dev/null || missing="$missing elfutils" # stacks of native programs
    command -v javac >/dev/null || missing="$missing default-jdk-headless"
    # As root only: the tests run containers in cgroups of the machine. crun refuses machines with both versions of cgroups.
    [ "$(id -u)" != 0 ] || command -v podman >/dev/null || missing="$missing podman runc busybox-static"
    command -v go >/dev/null || missing="$missing golang-go" # its pprof reads exported profiles
    ldconfig -p | grep -q libjemalloc.so.2 || missing="$missing libjemalloc2" # what allocators keep
    ldconfig -p | grep -q libmimalloc.so.2 || missing="$missing libmimalloc2.0"
    command -v google-pprof >/dev/null || missing="$missing google-perftools"
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
    if [ ! -x "$2/bin/python" ]; then
        "$1" -m venv "$2"
        "$2/bin/python" -m pip install --quiet --upgrade "pip>=25.1" # the first that knows groups
    fi
    rm -rf "$root"/build/lib* "$root"/build/temp* "$root"/build/bdist*
    # What is never imported need not be compiled: that would take as long as all else.
    "$2/bin/python" -m pip install --quiet --no-compile --group "$root/pyproject.toml:dev" "$root"
}

# The tests run in a folder without the sources: what is imported is the installed wheel.
stage_tests() {
    rm -rf "$stage"
    mkdir -p "$stage"
    for part in tests pyproject.toml README.md CHANGELOG.md changes CODE_OF_CONDUCT.md CONTRIBUTING.md SECURITY.md mkdocs.yml docs dashboards deploy .github; do
        [ ! -e "$part" ] || cp -r "$part" "$stage"
    done
}

# run_tests NAME ENVIRONMENT [PYTEST ARGUMENTS]: the closing line is kept for the end
run_tests() {
    name="$1"
    bin="$2/bin"
    shift 2
    say "$name, $("$bin/python" --version)"
    (
        cd "$stage"
        code=0
        PATH="$bin:$PATH" OTEL_MEMWATCH_TEST_SOURCES="$root" "$bin/python" -m pytest -o cache_dir="$cache" "$@" || code=$?
        echo "$code" >"$status"
    ) 2>&1 | tee "$log"
    printf '%s: %s\n' "$name" "$(tail -n 1 "$log")" >>"$results"
    [ "$(cat "$status")" = 0 ] || [ "$may_fail" = yes ] || finish "$(cat "$status")"
}

# run_beside_others FILE NAME ENVIRONMENT [PYTEST ARGUMENTS]: like run_tests, but up to five tests that failed beside others run
# once more, alone. On a busy machine one of four thousand may not wait long enough for an event: that is a defect of the test,
# not of the product. The results name it, and if the next run has to retry it as well, that run fails. FILE below $retried keeps
# the names; CI carries the folder from run to run.
run_beside_others() {
    rm -rf "$cache"
    kept="$retried/$1"
    shift
    may_fail=yes
    run_tests "$@"
    may_fail=no
    if [ "$(cat "$status")" = 0 ]; then
        sh "$root/tests/retried.sh" "$kept" </dev/null
        return
    fi
    failed=$(sed -n -e 's/ - .*//' -e 's/^\(FAILED\|ERROR\) \(tests.*\)/\2/p' "$log" | sort -u)
    if [ "$(cat "$status")" != 1 ] || [ "$(printf '%s\n' "$failed" | wc -l)" -gt 5 ]; then
        finish "$(cat "$status")"
    fi
    run_tests "of these alone" "$2" -q --last-failed --last-failed-no-failures none
    printf '%s\n' "$failed" | sed 's/^/failed beside others and passed alone, fix this test: /' >>"$results"
    printf '%s\n' "$failed" | sh "$root/tests/retried.sh" "$kept" >>"$results" || finish 1
}

finish() {
    say "results"
    cat "$results"
    exit "$1"
}

# Three workers a core, since most tests wait; what measures time runs alone after the others.
workers=$(($(getconf _NPROCESSORS_ONLN) * 3))
[ "$workers" -le 8 ] || workers=8
beside="-q -n $workers"

lint() {
    say "lint, types, layers"
    "$venv/bin/ruff" check .
    "$venv/bin/ruff" format --check .
    "$venv/bin/mypy"
    PATH="$venv/bin:$PATH" "$venv/bin/lint-imports"
}

every_test() {
    # shellcheck disable=SC2086  # a list of words
    run_beside_others retried "all tests" "$venv" $beside -m "not quiet and not thorough" --durations=25
    run_tests "tests that measure time" "$venv" -q -m quiet --durations=10
}

# The error of the kernel's counters grows with the number of processors, so what is exact on two may be a range on 64.
# on_machines COUNTS [PYTEST ARGUMENTS]
on_machines() {
    counts="$1"
    shift
    for count in $counts; do
        # shellcheck disable=SC2086  # a list of words
        MEMWATCH_TEST_PROCESSORS="$count" run_tests "as with $count processors" "$venv" $beside -m "not quiet and not thorough" "$@"
    done
}

as_processors() {
    on_machines "1 2 3 4 16 64 256" tests/unit
    on_machines 4 tests/e2e tests/contract
}

# The unit tests whose figures contain that error.
of_processors="tests/unit/monitor/sampling/sources/process_tree tests/unit/in_target/operations tests/unit/plugins/test_tasks.py \
    tests/unit/run/test_recorded_run.py tests/unit/runtime"

thorough_tests() {
    # shellcheck disable=SC2086  # a list of words
    run_beside_others retried-thorough "thorough tests" "$venv" $beside -m thorough --durations=10
}

# CPU time of short commands and of a sample, in units of a bare interpreter, beside that of the last release. It fails nothing, because
# machines differ and other work disturbs it: a ratio that stays above 1 from commit to commit is a regression.
costs() {
    say "costs beside the last release"
    (
        cd "$stage"
        timeout 180 "$venv/bin/python" tests/bench/bench_waiting.py --only-us --only-short --short 5 --samples 1 \
            --beside tests/bench/results/release.json
    ) >"$log" 2>&1 || { cat "$log" && echo "costs: not measured" >>"$results"; }
    sed -n "/^| /p" "$log" >>"$results"
}

# The contract test drives both implementations of operations in every run; this is the rest of their tests with the plain one.
plain_operations() {
    # shellcheck disable=SC2086
    OTEL_MEMWATCH_PLAIN_OPERATIONS=1 run_tests "operations without compiled code" "$venv" $beside \
        tests/unit/in_target tests/e2e/test_operation*.py tests/e2e/test_spans_are_operations.py
}

coverage() {
    # shellcheck disable=SC2086
    (cd "$stage" && PATH="$venv/bin:$PATH" "$venv/bin/coverage" run --branch --source otel_memwatch \
        -m pytest -p no:cacheprovider -q -m "not quiet" tests/unit)
    printf 'coverage of the package by its unit tests, branches included: %s %%\n' \
        "$(cd "$stage" && "$venv/bin/coverage" report --format total)" | tee -a "$results"
}

other_pythons() {
    for version in 3.10 3.11 3.12 3.13 3.14; do
        for python in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
            command -v "$python" >/dev/null || continue
            "$python" -c 'import ensurepip' 2>/dev/null || continue
            [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = "$version" ] || continue
            [ "$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" != "$version" ] || continue
            environment "$python" "$venv-$version"
            # shellcheck disable=SC2086
            run_tests "unit, contract and main job" "$venv-$version" $beside -m "not quiet" \
                tests/unit tests/contract tests/e2e/test_main_job.py
            break
        done
    done
}

# The callbacks in the frameworks themselves: some 2 GB, which no other test needs.
frameworks() {
    environment python3 "$venv-frameworks"
    "$venv-frameworks/bin/python" -m pip install --quiet --group "$root/pyproject.toml:frameworks"
    OTEL_MEMWATCH_FRAMEWORKS_PYTHON="$venv-frameworks/bin/python" run_tests "frameworks" "$venv-frameworks" -q \
        tests/e2e/test_compat_callbacks.py tests/gpu/test_cpu_pytorch.py tests/e2e/test_group_launchers.py
}

# Workflow engines with the shell that records their rules; and Slurm and Snakemake read what is advised to them.
engines() {
    if command -v apt-get >/dev/null && ! { command -v slurmd && command -v bazel; } >/dev/null; then
        as_root=""
        [ "$(id -u)" = 0 ] || as_root="sudo"
        RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends \
            slurmctld slurmd slurm-client munge bazel-bootstrap >/dev/null
    fi
    environment python3 "$venv-engines"
    "$venv-engines/bin/python" -m pip install --quiet --group "$root/pyproject.toml:engines"
    MEMWATCH_LONG=1 OTEL_MEMWATCH_SNAKEMAKE="$venv-engines/bin/snakemake" run_tests "workflow engines" "$venv-engines" -q \
        tests/e2e/test_shell.py tests/e2e/test_snakemake.py tests/e2e/test_advise_engines.py tests/e2e/test_ray.py \
        tests/e2e/test_trackers.py tests/e2e/test_cwltool.py tests/e2e/test_group_launchers.py tests/e2e/test_galaxy.py \
        tests/e2e/test_build_actions.py
    # A pipeline that is published with its data; of the packages of its year, which the tests do not share.
    if command -v apt-get >/dev/null && ! command -v minimap2 >/dev/null; then
        as_root=""
        [ "$(id -u)" = 0 ] || as_root="sudo"
        DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends \
            minimap2 samtools zstd >/dev/null
    fi
    if [ ! -x "$venv-pipeline/bin/python" ]; then
        python3 -m venv "$venv-pipeline"
        "$venv-pipeline/bin/python" -m pip install --quiet --upgrade "pip>=25.1"
    fi
    "$venv-pipeline/bin/python" -m pip install --quiet --group "$root/pyproject.toml:pipeline"
    OTEL_MEMWATCH_KOVERAGE="$venv-pipeline/bin/koverage" run_tests "a published pipeline" "$venv" -q \
        -o faulthandler_timeout=0 tests/e2e/test_published_pipeline.py
    # Airflow pins what it shares with others: it has an environment of its own.
    if [ ! -x "$venv-airflow/bin/python" ]; then
        python3 -m venv "$venv-airflow"
        "$venv-airflow/bin/python" -m pip install --quiet --upgrade "pip>=25.1"
    fi
    "$venv-airflow/bin/python" -m pip install --quiet --no-compile --group "$root/pyproject.toml:airflow" "$root"
    run_tests "Airflow" "$venv-airflow" -q -o faulthandler_timeout=0 tests/e2e/test_airflow.py
}

long_profiles() {
    MEMWATCH_LONG=1 OTEL_MEMWATCH_TEST_PROGRAMS=300 run_tests "long profiles" "$venv" -q --timeout=0 \
        -o faulthandler_timeout=0 tests/e2e/test_torture_*.py tests/e2e/test_*_certificates.py \
        tests/e2e/test_pytest_suites.py tests/contract/docs tests/contract/test_release.py \
        tests/unit/record/test_fuzz_records.py tests/unit/runtime/procfs/test_fuzz_parsers.py
}

lowest_versions() {
    say "lowest versions"
    sh tests/lowest.sh
}

virtual_machines() {
    say "systemd and control groups of version 2, in virtual machines"
    PYTHON="$venv/bin/python" sh tests/vm/run.sh
}

debian_packages
say "virtual environment"
environment python3 "$venv"
stage_tests

case "${1-}" in
"")
    lint
    every_test
    # shellcheck disable=SC2086
    on_machines "1 4 64" $of_processors
    ;;
more)
    thorough_tests
    costs
    ;;
all)
    lint
    every_test
    thorough_tests
    costs
    plain_operations
    coverage
    other_pythons
    lowest_versions
    frameworks
    engines
    long_profiles
    virtual_machines
    as_processors
    ;;
coverage) coverage ;;
costs) costs ;;
plain) plain_operations ;;
pythons) other_pythons ;;
lowest) lowest_versions ;;
frameworks) frameworks ;;
engines) engines ;;
long) long_profiles ;;
machines) virtual_machines ;;
processors) as_processors ;;
*) run_tests "these tests" "$venv" "$@" ;;
esac
finish 0
