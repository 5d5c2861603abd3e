#!/bin/sh
# Runs the wheel in a real Debian with systemd and control groups of version 2, in a virtual machine.
#   sh tests/vm/run.sh [6.12|6.1] [PYTEST ARGUMENTS]    one kernel, or both
# The machine is emulated, so that it needs no KVM: about 20 s to boot, a few minutes a kernel. Its image is built once,
# as root, and kept in $MEMWATCH_VM (default build/vm; 3 GB): remove that folder to build it anew. MEMWATCH_VM_JOBS names
# the jobs to run where not all are wanted, MEMWATCH_VM_ACCEL another accelerator of QEMU's, and MEMWATCH_VM_ZOO the words for
# tests.zoo ("300 --seed 7"), whose trials are then in results/KERNEL/zoo/zoo.jsonl; MEMWATCH_VM_SECONDS is how long a machine may take.
# MEMWATCH_VM_REFEREE has the words for tests.referee ("--user user --only bash --only 'pool, fork'", "--minutes 9 --part 1/2").
# MEMWATCH_VM_HOGS is the number of hogs in each of the jobs hogs-* (default 8), MEMWATCH_VM_CONTAINERS of containers (default 3).
# "one two" in MEMWATCH_VM_JOBS are jobs one after the other, "one+two" at the same time, which is faster.
# MEMWATCH_VM_CPUS is the number of processors (default 2). The jobs for many processors, in about ten minutes on two idle ones:
#   MEMWATCH_VM_CPUS=64 MEMWATCH_VM_JOBS="spread-root spread-user one-root one-user brief-root demo" sh tests/vm/run.sh 6.12 -k "late or faults or demo"
set -eu
cd "$(dirname "$0")/../.."
cache=${MEMWATCH_VM:-$(pwd)/build/vm}
root=$cache/root
mkdir -p "$cache"

say() { printf '\n== %s\n' "$*"; }

[ "$(id -u)" = 0 ] || { echo "tests/vm/run.sh makes the files of a machine, as root: run it with sudo" >&2; exit 2; }

debian_packages() {
    missing=""
    command -v qemu-system-x86_64 >/dev/null || missing="$missing qemu-system-x86"
    command -v mmdebstrap >/dev/null || missing="$missing mmdebstrap"
    command -v mkfs.ext4 >/dev/null || missing="$missing e2fsprogs"
    [ -n "$missing" ] || return 0
    say "Debian packages:$missing"
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# The image: both kernels, an unprivileged user, a virtual environment with what the wheel depends on.
build() {
    say "image of the machine"
    packages=systemd-sysv,dbus,dbus-user-session,libpam-systemd,python3,python3-venv,python3-dev,gcc,libc6-dev
    packages=$packages,procps,util-linux,passwd,kmod,udev,initramfs-tools,zstd
    packages=$packages,podman,crun,uidmap,slirp4netns,fuse-overlayfs,busybox-static
    packages=$packages,linux-image-6.12-cloud-amd64,linux-image-cloud-amd64
    # Programs that tests.referee runs.
    packages=$packages,make,git,rsync,sqlite3,postgresql,redis-server,memcached,nginx-light,curl,nodejs,ruby,lua5.4,tcl,zsh
    packages=$packages,xz-utils,bzip2,pigz,lz4,zip,jq,gawk,libxml2-utils,m4,bison,flex,nasm,tcc,openssl,strace
    packages=$packages,g++,openjdk-17-jdk-headless,php-cli,ripgrep,brotli,p7zip-full,groff-base,gpg,gpg-agent,gdb,parallel
    sources=/etc/apt/sources.list.d/debian.sources # of a machine that is a bookworm itself: its mirrors can be reached
    grep -qs bookworm "$sources" || sources=""
    [ -e "$cache/root.tar" ] || {
        # shellcheck disable=SC2086  # none or one
        mmdebstrap --quiet --mode=root --format=tar --variant=minbase --include="$packages" bookworm "$cache/root.tar.new" $sources
        mv "$cache/root.tar.new" "$cache/root.tar"
    }
    rm -rf "$root"
    mkdir "$root"
    tar -C "$root" -xf "$cache/root.tar" --exclude='./dev/*'
    chroot "$root" useradd -m -s /bin/bash tester
    # A second user whose manager runs without a session of theirs.
    chroot "$root" useradd -m -s /bin/bash lingerer
    mkdir -p "$root/var/lib/systemd/linger"
    touch "$root/var/lib/systemd/linger/lingerer"
    cp tests/vm/memwatch-job.service "$root/etc/systemd/system/"
    chroot "$root" systemctl --quiet enable memwatch-job.service
    chroot "$root" systemctl --quiet mask postgresql.service redis-server.service memcached.service nginx.service
    chroot "$root" python3 -c '
import sys, tomllib
print(*tomllib.loads(sys.stdin.read())["project"]["dependencies"], "setuptools>=77", "wheel", sep="\n")
' <pyproject.toml >"$cache/requirements"
    python3 -m pip download --quiet --dest "$root/opt/wheels" --only-binary :all: --python-version 3.11 \
        --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
        --requirement "$cache/requirements"
    chroot "$root" python3 -m venv /opt/venv
    chroot "$root" sh -c '/opt/venv/bin/pip install --quiet --no-index --no-deps /opt/wheels/*.whl'
    touch "$cache/built"
}

# The wheel of this checkout, built and installed by the machine's own Python.
install() {
    say "wheel"
    rm -rf "$root/opt/source" "$root/opt/jobs"
    mkdir "$root/opt/source"
    cp -r otel_memwatch pyproject.toml setup.py MANIFEST.in README.md LICENSE "$root/opt/source/"
    find "$root/opt/source" -name '*.so' -delete
    chroot "$root" /opt/venv/bin/pip install --quiet --no-index --no-deps --no-build-isolation \
        --force-reinstall /opt/source
    rm -rf "$root/opt/source"
    # An emulated machine is some 20 times slower. A source reads there what it could on a real one.
    case "${MEMWATCH_VM_ACCEL:-tcg}" in tcg*)
        sed -i 's/^CPU_SHARE = 0.05$/CPU_SHARE = 1.0/' "$root"/opt/venv/lib/python3.*/site-packages/otel_memwatch/monitor/sampling/sampler.py
        ;;
    esac
    mkdir "$root/opt/jobs"
    cp tests/vm/jobs/*.* "$root/opt/jobs/"
    chroot "$root" gcc -O1 -o /opt/jobs/processors /opt/jobs/processors.c
    rm -rf "$root/opt/zoo"
    mkdir -p "$root/opt/zoo/tests"
    cp -r tests/__init__.py tests/support tests/zoo tests/referee tests/bench tests/programs "$root/opt/zoo/tests/"
    echo "${MEMWATCH_VM_ZOO:-9}" >"$root/opt/jobs/zoo"
    echo "${MEMWATCH_VM_REFEREE:---user root --only bash}" >"$root/opt/jobs/referee"
    echo "${MEMWATCH_VM_HOGS:-8} --slower 5" >"$root/opt/jobs/hogs"
    echo "${MEMWATCH_VM_CONTAINERS:-3} --slower 10" >"$root/opt/jobs/containers"
    [ -z "${MEMWATCH_VM_JOBS:-}" ] || echo "$MEMWATCH_VM_JOBS" >"$root/opt/jobs/only"
}

# boot KERNEL: runs all jobs; their results are then in $cache/results/KERNEL.
boot() {
    say "machine with Linux $1"
    out=$cache/results/$1
    rm -rf "$out" "$cache/results.disk" "$cache/disk"
    mkdir -p "$out"
    kernel=$(ls "$root"/boot/vmlinuz-"$1"[.-]*)
    mkfs.ext4 -q -d "$root" "$cache/disk" 6G >/dev/null
    mkfs.ext4 -q "$cache/results.disk" 256M >/dev/null
    accelerator=${MEMWATCH_VM_ACCEL:-tcg,thread=multi,tb-size=512}
    # Of 64 emulated processors, each measures its loops for seconds without lpj. sched_clock_init_late changes code that all
    # of them run: they panicked three times of four (int3).
    timeout "${MEMWATCH_VM_SECONDS:-2400}" qemu-system-x86_64 -accel "$accelerator" -cpu max -m 3G -smp "${MEMWATCH_VM_CPUS:-2}" \
        -display none -no-reboot -serial "file:$out/console" \
        -kernel "$kernel" -initrd "$root/boot/initrd.img-${kernel#*/vmlinuz-}" \
        -drive "file=$cache/disk,format=raw,if=virtio" -drive "file=$cache/results.disk,format=raw,if=virtio" \
        -append 'root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0 mitigations=off tsc=reliable lpj=10000000 panic=1 initcall_blacklist=sched_clock_init_late' </dev/null || true
    e2fsck -fy "$cache/results.disk" >/dev/null 2>&1 || true # a machine that was stopped left a journal
    debugfs -R "rdump / $out" "$cache/results.disk" >/dev/null 2>&1
    rm -f "$cache/disk" "$cache/results.disk"
    [ -e "$out/complete" ] || { echo "the machine did not complete its jobs: see $out" >&2; exit 1; }
}

kernels="6.12 6.1"
case "${1:-}" in 6.12 | 6.1) kernels=$1; shift ;; esac
debian_packages
[ -e "$cache/built" ] || build
install
for kernel in $kernels; do boot "$kernel"; done
say "what the jobs found"
MEMWATCH_VM_RESULTS="$cache/results" MEMWATCH_VM_KERNELS="$kernels" \
    "${PYTHON:-python3}" -m pytest -p no:cacheprovider tests/vm/test_vm.py "$@"
