#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/detail/launch/recorder.hpp>
#include <ccl/pipeline.hpp>
#include <ccl/proto/simple.hpp>

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "support/on_ranks.hpp"
#include "support/ranks.hpp"

// Pipelines over ranks of several hosts, compared with a plain reference, and their errors. They
// use one algorithm and protocol, because stages have tests of their own.
using namespace ccl;
using namespace ccl::test;

namespace {

template <class Level, class Op, class Algo = Ring>
using By = On<Level, Op, Algo, Simple, DefaultTransport>;

/// A type of 16 bits of a program's own.
struct Eighths {
  std::int16_t value;
  friend Eighths operator+(Eighths a, Eighths b) { return {std::int16_t(a.value + b.value)}; }
};
struct ToEighths {
  Eighths operator()(float x) const { return {std::int16_t(x * 8)}; }
};
struct FromEighths {
  float operator()(Eighths e) const { return float(e.value) / 8; }
};
/// A struct, and a functor that reduces it.
struct Range {
  float low, high;
};
struct Around {
  Range operator()(float x) const { return {x - 1, x + 1}; }
};
struct Length {
  double operator()(const Range& r) const { return r.high - r.low; }
};
struct Union {
  Range operator()(const Range& a, const Range& b) const {
    return {std::min(a.low, b.low), std::max(a.high, b.high)};
  }
};
struct Times {
  int factor = 1;
  int operator()(int x) const { return x * factor; }
};

using Rails =
    Pipeline<By<IntraNode, ReduceScatter>, By<InterNode, AllReduce>, By<IntraNode, AllGather>>;
using Narrow = Pipeline<By<IntraNode, ReduceScatter>, Map<ToEighths>, By<InterNode, AllReduce>,
                        Map<FromEighths>, By<IntraNode, AllGather>>;
using NarrowFloat =
    Pipeline<By<IntraNode, ReduceScatter>, Map<Convert<bfloat16>>, By<InterNode, AllReduce>,
             Map<Convert<float>>, By<IntraNode, AllGather>>;
using Ranges =
    Pipeline<Map<Around>, By<IntraNode, AllReduce>, By<InterNode, AllReduce>, Map<Length>>;
using Scaled = Pipeline<Map<Times>, By<World, ReduceScatter>, Map<Times>, By<World, AllGather>>;
using Gathers = Pipeline<By<IntraNode, AllGather>, By<InterNode, AllGather>>;
using Shares = Pipeline<By<IntraNode, ReduceScatter>, By<InterNode, ReduceScatter>>;
using Blocks = Pipeline<Map<Times>, By<World, AllToAll, Pairwise>, Map<Times>>;

int number(Index rank, Index i) {
  return int(i % 1013) * 3 + int(rank) * 1000;
}

/// Position of this rank.
struct Spot {
  std::vector<std::vector<int>> hosts;
  int host = 0, local = 0;
  int locals() const { return int(hosts[0].size()); }
};
Spot spot_of(const std::string& names, int rank) {
  Spot spot;
  std::string seen;
  for (std::size_t r = 0; r < names.size(); ++r) {
    std::size_t h = seen.find(names[r]);
    if (h == std::string::npos) {
      h = seen.size();
      seen += names[r];
      spot.hosts.emplace_back();
    }
    if (int(r) == rank) {
      spot.host = int(h);
      spot.local = int(spot.hosts[h].size());
    }
    spot.hosts[h].push_back(int(r));
  }
  return spot;
}

/// All pipelines on the ranks of one job. Empty if all is right.
struct Sweep {
  const Communicator& comm;
  Spot at;
  Index scratch;  // 0: the default
  std::string wrong{};

  const Index ranks = comm.ranks(), me = comm.rank();

  void expect(const char* what, Index count, bool good) {
    if (!good) wrong += fmt::format("{} of {} is wrong on rank {}; ", what, count, me);
  }
  /// Calls with `in` of `count` elements, in place and not, and on a stream; `want(i)` is element
  /// i.
  template <class U, class P, class T, class Want, class... Op>
  Result<void> compare(const char* what, const P& pipeline, const std::vector<T>& in, Want want,
                       bool in_place, Op... op) {
    const Index n = Index(in.size()), m = pipeline.out_count(n);
    HostStream stream;
    for (const int way : {0, 1, 2}) {
      if (way == 1 && !in_place) continue;
      std::vector<U> out(std::size_t(m) + 1, U{});
      if constexpr (std::is_same_v<T, U>) {
        if (way == 1) std::copy(in.begin(), in.end(), out.begin());
      }
      const U mark = out.back();
      const auto* const from = way == 1 ? reinterpret_cast<const T*>(out.data()) : in.data();
      CCL_CHECK(pipeline(from, out.data(), n, op..., way == 2 ? Stream{stream} : Stream{}));
      CCL_CHECK(stream.synchronize());
      bool good = std::memcmp(&mark, &out.back(), sizeof mark) == 0;
      for (Index i = 0; i < m && good; ++i) good = out[std::size_t(i)] == want(i);
      expect(what, n, good);
    }
    return {};
  }
  template <class T, class F>
  static std::vector<T> filled(Index n, F value) {
    std::vector<T> all;
    for (Index i = 0; i < n; ++i) all.push_back(T(value(i)));
    return all;
  }

  Result<std::string> all() {
    CCL_TRY(const auto rails, Rails::create(comm, {}, scratch));
    CCL_TRY(const auto narrow, Narrow::create(comm, {}, scratch));
    CCL_TRY(const auto floats, NarrowFloat::create(comm, {}, scratch));
    CCL_TRY(const auto ranges, Ranges::create(comm, {}, scratch));
    CCL_TRY(const auto scaled, Scaled::create(comm, {Times{3}, Times{5}}, scratch));
    CCL_TRY(const auto gathers, Gathers::create(comm, {}, scratch));
    CCL_TRY(const auto shares, Shares::create(comm, {}, scratch));
    CCL_TRY(const auto blocks, Blocks::create(comm, {Times{2}, Times{7}}, scratch));
    const auto sum = [&](Index i) {
      int s = 0;
      for (int r = 0; r < ranks; ++r) s += number(r, i);
      return s;
    };
    for (const Index n :
         {Index{0}, Index{1}, Index{2}, Index{5}, Index{24}, Index{1003}, Index{150'001}}) {
      const auto own = filled<int>(n, [&](Index i) { return number(me, i); });
      CCL_CHECK(compare<int>("rails", rails, own, sum, true, Sum{}));
      CCL_CHECK(compare<int>(
          "scaled", scaled, own, [&](Index i) { return sum(i) * 15; }, true, Sum{}));
      CCL_CHECK(compare<int>(
          "another scale", scaled.with({Times{1}, Times{2}}), own,
          [&](Index i) { return sum(i) * 2; }, true, Sum{}));
      const Index L = at.locals();
      CCL_CHECK(compare<int>(
          "gathers", gathers, own,
          [&](Index i) {
            const Index who = i / n;
            return number(at.hosts[std::size_t(who / L)][std::size_t(who % L)], i % n);
          },
          false));
      if (n > 100'000 && scratch != 0) continue;  // many passes test nothing more
      const auto wide = filled<int>(n * ranks, [&](Index i) { return number(me, i); });
      const Index begin = (at.local * Index(at.hosts.size()) + at.host) * n;
      CCL_CHECK(compare<int>(
          "shares", shares, wide, [&](Index i) { return sum(begin + i); }, false, Sum{}));
      CCL_CHECK(compare<int>(
          "blocks", blocks, wide, [&](Index i) { return number(i / n, me * n + i % n) * 14; },
          false));

      // In eighths everything is exact; in bfloat16 what a host has added up is rounded, and the
      // sum of two hosts once more.
      const auto value = [](Index rank, Index i) {
        return float((i * 7 + rank * 29) % 301) * 0.375f - 20;
      };
      const auto real = filled<float>(n, [&](Index i) { return value(me, i); });
      const auto of_host = [&](std::size_t h, Index i) {
        float s = 0;
        for (const int r : at.hosts[h]) s += value(r, i);
        return s;
      };
      CCL_CHECK(compare<float>(
          "narrow", narrow, real,
          [&](Index i) {
            float s = 0;
            for (std::size_t h = 0; h < at.hosts.size(); ++h) s += of_host(h, i);
            return s;
          },
          true, Sum{}));
      const auto rounded = [](float x) {
        return Element<bfloat16>::widen(Element<bfloat16>::narrow(x));
      };
      if (at.hosts.size() <= 2) {
        CCL_CHECK(compare<float>(
            "narrow float", floats, real,
            [&](Index i) {
              float s = rounded(of_host(0, i));
              if (at.hosts.size() == 2) s = rounded(s + rounded(of_host(1, i)));
              return s;
            },
            true, Sum{}));
      }
      CCL_CHECK(compare<double>(
          "ranges", ranges, real,
          [&](Index i) {
            Range all = Around{}(value(0, i));
            for (int r = 1; r < ranks; ++r) all = Union{}(all, Around{}(value(r, i)));
            return Length{}(all);
          },
          false, Union{}));
    }
    return wrong;
  }
};

std::function<void(int)> hosts(const std::string& names) {
  return [names](int r) { on_host(names.substr(std::size_t(r), 1)); };
}
void sweep(const std::string& names, Index scratch) {
  INFO(names << ", " << scratch << " bytes of scratch");
  const auto body = [&](const Communicator& comm) -> Answer {
    return Sweep{comm, spot_of(names, comm.rank()), scratch}.all();
  };
  for (const std::string& wrong : run(int(names.size()), hosts(names), body)) CHECK(wrong == "");
}
/// Returns the result of each rank on hosts `names`.
std::vector<std::string> said(const std::string& names, const Body& body) {
  return run(int(names.size()), hosts(names), body);
}
bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}
std::string text_of(const Result<void>& result) {
  return result ? "no error" : result.error().message();
}

}  // namespace

TEST_CASE("pipeline: one host, one rank on each, and one rank") {
  for (const char* const names : {"A", "AAAA", "ABCD"}) sweep(names, 8192);
}

TEST_CASE("pipeline: hosts of several ranks, numbered host by host and around") {
  for (const char* const names : {"AABB", "ABAB", "AAABBB", "AABBCC"}) sweep(names, 8192);
}

TEST_CASE("pipeline: with the scratch that it takes by itself") {
  sweep("AABB", 0);
}

namespace {
/// Calls by turns on two streams. Empty if all is right.
Answer on_two_streams(const Communicator& comm) {
  CCL_TRY(const auto narrow, Narrow::create(comm, {}, 4096));
  constexpr Index n = 2001;
  std::vector<float> in(n), out[4];
  for (Index i = 0; i < n; ++i) in[std::size_t(i)] = float(i % 100 + comm.rank());
  HostStream a, b;
  for (int k = 0; k < 4; ++k) {
    out[k].assign(n, -1);
    CCL_CHECK(narrow(in.data(), out[k].data(), n, Sum{}, k % 2 == 0 ? a : b));
  }
  CCL_CHECK(a.synchronize());
  CCL_CHECK(b.synchronize());
  for (const auto& got : out) {
    for (Index i = 0; i < n; ++i) {
      if (got[std::size_t(i)] != float(i % 100 * 4 + 6)) return fmt::format("element {}", i);
    }
  }
  return std::string{};
}
}  // namespace

TEST_CASE("pipeline: two streams share its scratch, call by call") {
  for (const std::string& wrong : said("AABB", on_two_streams)) CHECK(wrong == "");
}

TEST_CASE("pipeline: ranks of one process") {
  const auto body = [](const Communicator& comm) -> Result<void> {
    CCL_TRY(std::string wrong, (Sweep{comm, spot_of("AAAA", comm.rank()), 8192}.all()));
    CCL_TRY(const std::string more, on_two_streams(comm));
    if ((wrong += more).empty()) return {};
    return fail(Errc::internal, wrong);
  };
  Config config;
  config.timeout_s = 20;
  check_well(on_ranks(4, config, body));
}

TEST_CASE("pipeline: an average is taken at each stage") {
  const auto body = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto rails, Rails::create(comm));
    std::vector<float> x(1001, float(comm.rank() * 8));
    CCL_CHECK(rails(x.data(), x.data(), 1001, Avg{}));
    for (const float y : x) {
      if (y != 12) return fmt::format("{} instead of 12", y);
    }
    return {};
  };
  for (const std::string& wrong : said("AABB", body)) CHECK(wrong == "");
}

TEST_CASE("pipeline: a plan names every stage, its ranks and its counts") {
  const auto body = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto narrow, NarrowFloat::create(comm, {}, 16384));
    CCL_TRY(const auto shares, Shares::create(comm));
    return narrow.plan<float>(1001).text() + narrow.name() +
           fmt::format("\n{} passes, {} of {}, least {} and {}", narrow.plan<float>(1 << 20).passes,
                       shares.out_count(60), shares.plan<int>(60).passes, narrow.min_count(),
                       shares.min_count());
  };
  for (const std::string& text : said("AAABBB", body)) {
    INFO(text);
    CHECK(contains(text, "reduce_scatter/Ring/Simple/"));
    CHECK(contains(text, "on IntraNode, 3 ranks: 1002 to 334 elements"));
    CHECK(contains(text, "map convert, 1 rank: 334 to 334 elements"));
    CHECK(contains(text, "on InterNode, 2 ranks: 334 to 334"));
    CHECK(contains(text, "on IntraNode, 3 ranks: 334 to 1002 elements\nin 1 pass\n"));
    CHECK(contains(text,
                   "pipeline(reduce_scatter on IntraNode, map convert, all_reduce on InterNode"));
    CHECK(contains(text, "47 passes, 10 of 1, least 1 and 6"));
  }
}

TEST_CASE("pipeline: what cannot be says why and what would") {
  // The errors of all ranks are short enough to be stated here whole.
  const auto refused = [](const Body& body, std::initializer_list<const char*> parts) {
    for (const std::string& text : said("AABB", body)) {
      INFO(text);
      for (const char* const part : parts) CHECK(contains(text, part));
    }
  };
  const auto counts = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto shares, Shares::create(comm));
    std::vector<int> x(100, 1), y(100, 1);
    return text_of(shares(x.data(), y.data(), 10)) + text_of(shares(x.data(), x.data() + 4, 12));
  };
  refused(counts, {"cut into 4 equal blocks; give it a multiple of 4",
                   "overlap; give it two buffers that lie apart"});
  const auto calls = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto rails, Rails::create(comm));
    std::vector<int> x(100, 1);
    detail::Recorder recorder;
    return text_of(rails(x.data(), x.data() + 1, 12)) +
           text_of(rails(x.data(), x.data(), 12, Sum{}, Stream{recorder}));
  };
  refused(calls, {"overlap; give it one buffer for both, or two", "no part of a group"});
  const auto buffers = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto tiny, Narrow::create(comm, {}, 64));
    CCL_TRY(auto moved, Rails::create(comm));
    std::vector<int> x(100, 1);
    std::vector<float> f(100, 1);
    std::string all = text_of(moved(x.data(), static_cast<int*>(nullptr), 12));
    all += text_of(tiny(f.data(), f.data(), 12));
    CCL_TRY(const auto least, Narrow::create(comm, {}, 1536));  // the minimum that the error names
    CCL_CHECK(least(f.data(), f.data(), 12));
    if (f[11] != 4) return fmt::format("{} instead of 4", f[11]);
    const auto to = std::move(moved);
    return all + text_of(moved(x.data(), x.data(), 12));  // NOLINT: on purpose
  };
  refused(buffers, {"recv is null", "has 64 bytes of scratch", "want 1536; give create that many",
                    "invalid_usage"});
  const auto below = [](const Communicator& comm) -> Answer {
    const auto made = Rails::create(comm, {}, -1);
    return made ? "no error" : made.error().message();
  };
  refused(below, {"-1 bytes of scratch cannot be"});
  const auto differs = [](const Communicator& comm) -> Answer {
    const auto made = Rails::create(comm, {}, comm.rank() == 0 ? 4096 : 8192);
    return made ? "no error" : made.error().message();
  };
  refused(differs, {"mismatch", "different scratch: rank 0 4096 bytes, rank 1 8192"});
}

TEST_CASE("pipeline: uneven hosts have no rails, and a host's own stages go on") {
  const auto rails = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto c, Rails::create(comm));
    return c.name();
  };
  for (const std::string& text : said("AAB", rails)) {
    INFO(text);
    CHECK(contains(text,
                   "equally many ranks on every host (that of rank 0 has 2, that of rank 2 1)"));
    CHECK(contains(text, "a pipeline of World or IntraNode alone"));
  }
  const auto inside = [](const Communicator& comm) -> Answer {
    using Inside = Pipeline<By<IntraNode, ReduceScatter>, By<IntraNode, AllGather>>;
    using Both = Pipeline<By<IntraNode, AllReduce>, By<World, AllReduce>>;
    using Mixed =
        Pipeline<By<IntraNode, ReduceScatter>, By<World, AllReduce>, By<IntraNode, AllGather>>;
    CCL_TRY(const auto one, Inside::create(comm));
    CCL_TRY(const auto both, Both::create(comm));
    std::vector<int> x(1001, comm.rank() + 1), y = x;
    CCL_CHECK(one(x.data(), x.data(), 1001));
    CCL_CHECK(both(y.data(), y.data(), 1001));
    const auto mixed = Mixed::create(comm);
    if (mixed) return std::string{"shares of uneven hosts"};
    return fmt::format("{} {}", x[1000], y[1000]);
  };
  const auto got = said("AAB", inside);
  CHECK(got[0] == "3 9");
  CHECK(got[1] == "3 9");
  CHECK(got[2] == "3 9");
}

TEST_CASE("pipeline: a rank that is gone ends those of other hosts and rails, too") {
  const auto left = [](const Communicator& comm) -> Answer {
    CCL_TRY(const auto rails, Rails::create(comm));
    std::vector<int> x(1000, 1);
    CCL_CHECK(rails(x.data(), x.data(), 1000));
    CCL_CHECK(comm.barrier());
    if (comm.rank() == 3) {
      sleep_s(0.3);  // so that the others are in their next call
      comm.abort("enough");
      return std::string{"gone"};
    }
    const auto done = rails(x.data(), x.data(), 1000);
    if (done) return std::string{"went on"};
    return std::string{comm.status() ? "still well" : "notified"};
  };
  const auto got = run(4, hosts("AABB"), left, false);
  for (int r = 0; r < 3; ++r) CHECK(got[std::size_t(r)] == "notified");
}
