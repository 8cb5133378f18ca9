#include <ccl/bootstrap.hpp>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "catch.hpp"

using namespace ccl;

namespace {

// Runs f(rank) on one thread per rank; the errors, by rank.
std::vector<Error> on_ranks(int ranks, const std::function<Result<void>(int)>& f) {
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
void all_ok(const std::vector<Error>& errors) {
  for (const Error& e : errors) {
    INFO(e.message());
    CHECK(e.code == Errc::ok);
  }
}
std::vector<UniqueId> some_ids(int count) {
  std::vector<UniqueId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(create_unique_id().value());
  return ids;
}
Result<void> expect(bool good, const char* what) {
  if (good) return {};
  return fail(Errc::internal, what);
}
#define EXPECT(...) CCL_CHECK(expect((__VA_ARGS__), #__VA_ARGS__))

Result<void> gather_works(Bootstrap& b) {
  std::vector<int> all(static_cast<size_t>(b.ranks()), -1);
  all[size_t(b.rank())] = 100 + b.rank();
  CCL_CHECK(b.all_gather(all.data(), sizeof(int)));
  for (int r = 0; r < b.ranks(); ++r) EXPECT(all[size_t(r)] == 100 + r);
  return {};
}

struct Interfaces {  // for one test
  Interfaces() { ::setenv("CCL_SOCKET_IFNAME", "=lo", 1); }
  ~Interfaces() { ::unsetenv("CCL_SOCKET_IFNAME"); }
};

}  // namespace

TEST_CASE("ranks are divided among roots as NCCL does") {
  CHECK(root_of_rank(3, 8, 2) == 0);
  CHECK(root_of_rank(4, 8, 2) == 1);
  for (int ranks = 1; ranks < 20; ++ranks) {
    for (int roots = 1; roots <= ranks; ++roots) {
      for (int r = 0; r < ranks; ++r) {
        const int root = root_of_rank(r, ranks, roots);
        CHECK(r >= first_rank_of_root(root, ranks, roots));
        CHECK((root + 1 == roots || r < first_rank_of_root(root + 1, ranks, roots)));
      }
    }
  }
}

TEST_CASE("ranks join, gather, talk, wait and leave") {
  const Interfaces lo;
  const int ranks = GENERATE(1, 2, 3, 8);
  const int roots = GENERATE(1, 2, 3);
  if (roots > ranks) return;
  const auto ids = some_ids(roots);
  all_ok(on_ranks(ranks, [&](int rank) -> Result<void> {
    CCL_TRY(auto b, Bootstrap::join(ids, rank, ranks, {20, nullptr}));
    EXPECT(b->rank() == rank && b->ranks() == ranks);
    for (int i = 0; i < 5; ++i) CCL_CHECK(gather_works(*b));
    std::vector<char> big(static_cast<size_t>(ranks) * 300000, char(rank));
    CCL_CHECK(b->all_gather(big.data(), 300000));
    for (int r = 0; r < ranks; ++r) EXPECT(big[size_t(r) * 300000 + 299999] == char(r));
    // To everybody, tags and peers in an order nobody waits for them in.
    for (int r = 0; r < ranks; ++r) {
      for (int tag = 0; tag < 3; ++tag) {
        const int value[2] = {rank * 10 + tag, 7};
        CCL_CHECK(b->send(r, std::uint64_t(tag), value, tag == 0 ? 4 : 8));
      }
    }
    for (int r = ranks - 1; r >= 0; --r) {
      for (int tag = 2; tag >= 0; --tag) {
        CCL_TRY(const auto message, b->recv(r, std::uint64_t(tag)));
        int value = 0;
        EXPECT(message.size() == (tag == 0 ? 4 : 8));
        std::memcpy(&value, message.data(), 4);
        EXPECT(value == r * 10 + tag);
      }
    }
    for (int i = 0; i < 3; ++i) CCL_CHECK(b->barrier());
    CCL_CHECK(b->all_gather_hosts(big.data(), 300000));
    EXPECT(b->place(ranks - 1).rank == ranks - 1 && b->place(0).pid == ::getpid());
    CCL_CHECK(b->finalize());
    const auto late = b->barrier();
    EXPECT(!late && late.error().code == Errc::invalid_usage);
    return b->status().result();
  }));
}
