#!/usr/bin/env bash
# Compiles the runtime and a part of the tests for aarch64 with Debian's cross compiler, and runs the
# tests under qemu's user emulation. Installs the packages with apt-get. Exits with 77 if they cannot
# be had.
#   run.sh FOLDER [arguments of ctest]
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${1:?folder}"
folder=$(cd "$1" && pwd)
shift
skip() {
  echo "SKIP: aarch64: $*"
  exit 77
}
# What depends on the processor: lanes, protocols, element types, start-up. Not tests that start other
# programs, limit their memory or ask the kernel for its sockets, which the emulator cannot, nor those
# of several processes, between which it does not store 16 bytes as a whole.
tests='^(algo\.(ring|tree|pairwise)|comm\.communicator|proto\..*|element\.types_ring'
tests+='|detail\.(lanes\..*|numeric\..*|transport\.zero_copy)|src\.(net\.auth|base\.(field_check|fork_mutex|text)))$'

if ! command -v aarch64-linux-gnu-g++ qemu-aarch64 >/dev/null; then
  command -v apt-get >/dev/null || skip "there is no apt-get to install the cross compiler"
  apt-get install -y --no-install-recommends g++-aarch64-linux-gnu qemu-user >"$folder/apt.log" 2>&1 ||
    skip "g++-aarch64-linux-gnu and qemu-user cannot be installed (see $folder/apt.log)"
fi
if [ ! -e "$folder/root/usr" ]; then
  mkdir -p "$folder/lists/partial" "$folder/packages"
  arm=(apt-get -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::Lists=$folder/lists"
    -o Dir::State::status=/dev/null -o APT::Sandbox::User=root)
  { "${arm[@]}" update && cd "$folder/packages" && "${arm[@]}" download libfmt-dev libfmt9 libpugixml-dev libpugixml1v5 \
    catch2 libibverbs-dev libsodium23; } >"$folder/apt.log" 2>&1 ||
    skip "the arm64 packages cannot be fetched (see $folder/apt.log)"
  for package in "$folder"/packages/*.deb; do dpkg -x "$package" "$folder/part"; done
  mkdir -p "$folder/root" && mv "$folder/part/usr" "$folder/root/usr"
fi
cmake --preset test -S "$source" -B "$folder/build" "-DCMAKE_TOOLCHAIN_FILE=$source/tests/aarch64/toolchain.cmake" \
  "-DCCL_AARCH64_ROOT=$folder/root" "-DCCL_TEST_FILTER=$tests" -DCCL_TEST_PREFIX=aarch64: -DCCL_BUILD_NCCL=OFF \
  -DCCL_BUILD_BENCHMARKS=OFF -DCCL_BUILD_EXAMPLES=OFF -DCCL_BUILD_TOOLS=OFF -DCCL_INSTALL=OFF -DCCL_REQUIRE_DOCS=OFF \
  >"$folder/configure.log" 2>&1 || { cat "$folder/configure.log" && exit 1; }
cmake --build "$folder/build" --target tests/all -j "$(nproc)" >"$folder/build.log" 2>&1 ||
  { grep -A20 FAILED "$folder/build.log" | head -60 && exit 1; }
ctest --test-dir "$folder/build" -R '^aarch64:ccl\.test\.' --output-on-failure --no-tests=error -j "$(nproc)" "$@"
