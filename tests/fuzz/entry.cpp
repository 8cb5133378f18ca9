#include <fmt/format.h>

#include <fstream>

#include "fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  ::setenv("CCL_DEBUG", "NONE", 0);
  for (int n = 1; n < *count; ++n) {
    const std::string_view argument = (*arguments)[n];
    constexpr std::string_view flag = "--seeds=";
    if (!argument.starts_with(flag)) continue;
    int number = 0;
    for (const std::string& seed : ccl::fuzz::seeds()) {
      std::ofstream{fmt::format("{}/seed{}", argument.substr(flag.size()), number++),
                    std::ios::binary}
          << seed;
    }
    std::exit(0);
  }
  ccl::fuzz::prepare();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ccl::fuzz::read({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
