#pragma once

// Ranks of one process, one thread each, that are connected by a bootstrap alone.
#include <ccl/detail/runtime/bootstrap.hpp>

#include <functional>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "environment.hpp"

namespace ccl::test {

/// Runs f(rank) on one thread per rank; the errors, by rank.
inline std::vector<Error> on_ranks(int ranks, const std::function<Result<void>(int)>& f) {
  std::vector<Error> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto result = f(r);
      errors[size_t(r)] = result ? Error{} : result.error();
      if (result) errors[size_t(r)].code = Errc::ok;
    });
  }
  for (auto& t : threads) t.join();
  return errors;
}
inline void all_ok(const std::vector<Error>& errors) {
  for (const Error& e : errors) {
    INFO(e.message());
    CHECK(e.code == Errc::ok);
  }
}
inline std::vector<UniqueId> some_ids(int count) {
  std::vector<UniqueId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(create_unique_id().value());
  return ids;
}
inline Result<void> expect(bool good, const char* what) {
  if (good) return {};
  return fail(Errc::internal, what);
}
#define EXPECT(...) CCL_CHECK(expect((__VA_ARGS__), #__VA_ARGS__))

inline Result<void> gather_works(detail::Bootstrap& b) {
  std::vector<int> all(static_cast<size_t>(b.ranks()), -1);
  all[size_t(b.rank())] = 100 + b.rank();
  CCL_CHECK(b.all_gather(all.data(), sizeof(int)));
  for (int r = 0; r < b.ranks(); ++r) EXPECT(all[size_t(r)] == 100 + r);
  return {};
}

struct Interfaces {  // for one test
  Environment only_loopback{"CCL_SOCKET_IFNAME", "=lo"};
};

}  // namespace ccl::test
