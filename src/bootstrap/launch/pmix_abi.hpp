#pragma once

#include <cstddef>
#include <cstdint>

namespace ccl::detail::net::pmix {

// Part of the PMIx standard's binary interface (versions 2 to 5) that an exchange of one string
// needs. With it a program runs with and without the library. A test compares it with pmix.h.

constexpr int success = 0;
constexpr int partial_success = -52;
constexpr std::uint16_t type_string = 3;
constexpr std::uint16_t type_uint32 = 14;
constexpr std::uint8_t scope_global = 3;
constexpr std::uint32_t rank_wildcard = UINT32_MAX - 1;
constexpr const char* job_size = "pmix.job.size";

struct Proc {
  char space[256];
  std::uint32_t rank;
};

struct Value {
  std::uint16_t type;
  union {
    char* text;
    std::uint32_t number;
    std::uint64_t room[8];  // the union of the library has 24 bytes
  };
};

using Init = int (*)(Proc*, void* info, std::size_t infos);
using Finalize = int (*)(const void* info, std::size_t infos);
using Put = int (*)(std::uint8_t scope, const char* key, Value*);
using Commit = int (*)();
using Fence = int (*)(const Proc*, std::size_t procs, const void* info, std::size_t infos);
using Get = int (*)(const Proc*, const char* key, const void* info, std::size_t infos, Value**);

}  // namespace ccl::detail::net::pmix
