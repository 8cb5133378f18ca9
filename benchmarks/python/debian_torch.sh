#!/usr/bin/env bash
# Makes a folder with Debian's newest CPU build of PyTorch, into which `chroot` works. It installs
# nothing on this machine. Needs root, apt and 1.2 GB; downloads 250 MB.
#   debian_torch.sh FOLDER [PACKAGE...]     # packages of Debian beside PyTorch and NumPy
#   chroot FOLDER /bin/bash -c '. /opt/env.sh; python3 -c "import torch; print(torch.__version__)"'
set -euo pipefail
root=$(realpath -m "$1")
shift
work=$root.apt
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/parts" "$root"
: >"$work/state/status"
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -1 || true)
[ -n "$mirror" ] || { echo "apt's sources name no mirror of Debian" >&2; exit 1; }
printf 'Types: deb\nURIs: %s\nSuites: sid\nComponents: main\nSigned-By: %s\n' "$mirror" \
  /usr/share/keyrings/debian-archive-keyring.gpg >"$work/parts/sid.sources"
apt=(apt-get -q -o "Dir::State=$work/state" -o "Dir::State::status=$work/state/status" -o "Dir::Cache=$work/cache"
  -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/parts" -o APT::Sandbox::User=root
  -o APT::Install-Recommends=false)
"${apt[@]}" update
"${apt[@]}" install -y --download-only python3-torch python3-numpy libpugixml1v5 bash coreutils "$@"
for package in "$work"/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
for name in bin lib lib64 sbin; do
  if [ ! -e "$root/$name" ] && [ -e "$root/usr/$name" ]; then ln -s "usr/$name" "$root/$name"; fi
done
mkdir -p "$root"/{dev,tmp,proc,opt}
[ -e "$root/dev/null" ] || mknod -m 666 "$root/dev/null" c 1 3
[ -e "$root/dev/urandom" ] || mknod -m 666 "$root/dev/urandom" c 1 9
mkdir -p "$root/dev/shm"
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mountpoint -q "$root/dev/shm" || mount -t tmpfs tmpfs "$root/dev/shm"
echo "127.0.0.1 localhost $(hostname)" >"$root/etc/hosts"
cat >"$root/opt/env.sh" <<'SH'
libs=/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$libs/blas:$libs/lapack PYTHONPATH=/opt/site GLOO_SOCKET_IFNAME=lo
export HOME=/tmp OMP_NUM_THREADS=1 USE_LIBUV=0
SH
