# Debian's cross compiler for aarch64, libraries in CCL_AARCH64_ROOT, and qemu for what is run.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CCL_AARCH64_ROOT)
list(APPEND CMAKE_PREFIX_PATH ${CCL_AARCH64_ROOT}/usr)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu
  -E LD_LIBRARY_PATH=${CCL_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu)
