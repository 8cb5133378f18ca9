#pragma once

// Every collective of one algorithm and protocol, over a transport that is chosen at run time, so
// that the element loops are compiled once.
#include <ccl/collective.hpp>

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <vector>

#include "support/chosen_transport.hpp"

namespace ccl::test {

/// `count` floats that begin `skew` bytes after an aligned address, with guards after the end.
class Buffer {
 public:
  Buffer(Index count, int skew)
      : count_{count}, bytes_(4 * count + 64 + skew, guard), skew_{skew} {}
  float* data() { return reinterpret_cast<float*>(bytes_.data() + skew_); }
  void set(Index i, float x) { std::memcpy(bytes_.data() + skew_ + 4 * i, &x, 4); }
  float get(Index i) const {
    float x;
    std::memcpy(&x, bytes_.data() + skew_ + 4 * i, 4);
    return x;
  }
  bool guarded() const {
    for (Index i = skew_ + 4 * count_; i < Index(bytes_.size()); ++i) {
      if (bytes_[i] != guard) return false;
    }
    return true;
  }

 private:
  static constexpr unsigned char guard = 0x5a;
  Index count_;
  std::vector<unsigned char> bytes_;
  int skew_;
};

inline float value(int rank, Index i) {
  return float((i * 7 + rank * 31) % 64);
}

/// Input of `runs` runs of `count`, output of `out_runs` runs, and the check of every element.
/// `want(rank, i)` is the value of output i; negative: untouched.
struct Trial {
  Index count;
  int skew;
  Index in_runs, out_runs;
  bool in_place;  // recv == send + own_in runs, or send == recv + own_out runs
  Result<void> run(const Communicator& comm,
                   const std::function<Result<void>(const float*, float*)>& call,
                   const std::function<float(Index)>& want, Index in_shift, Index out_shift,
                   std::atomic<Index>& wrong) const {
    const Index in = in_runs * count, out = out_runs * count;
    Buffer send{in_place ? std::max(in, out) : in, skew}, other{out, skew};
    Buffer& recv = in_place ? send : other;
    if (!in_place) {
      for (Index i = 0; i < out; ++i) recv.set(i, -1);
    }
    const Index from = in_place ? out_shift * count : 0, to = in_place ? in_shift * count : 0;
    for (Index i = 0; i < in; ++i) send.set(from + i, value(comm.rank(), i));
    CCL_CHECK(call(send.data() + from, recv.data() + to));
    for (Index i = 0; i < out; ++i) {
      const float w = want(i);
      if (w >= 0 ? recv.get(to + i) != w : (!in_place && recv.get(to + i) != -1)) ++wrong;
    }
    if (!send.guarded() || !recv.guarded()) ++wrong;
    return {};
  }
};

/// Fewer counts and alignments, where every call is slow: nine calls of each operation, or two.
enum class Thoroughness { all, brief, sparse };
inline Thoroughness thoroughness = Thoroughness::all;
inline bool is_left_out(Index count, Index largest, int skew, bool in_place) {
  switch (thoroughness) {
    case Thoroughness::all:
      return false;
    case Thoroughness::brief:
      return count < 7 || (skew == 1) != in_place;
    case Thoroughness::sparse:
      return !(count == 1023 && skew == 1 && in_place) &&
             !(count == largest && skew == 4 && !in_place);
  }
  return false;
}

/// All collectives that `Algo` runs, at counts 0, 1, odd and larger, aligned and not, in place and
/// not. Returns the number of calls checked.
template <class Algo, class Proto>
int run_suite(const std::vector<Communicator>& comms, Index largest) {
  std::atomic<Index> wrong{0};
  std::atomic<int> cases{0};
  on_all(comms, [&](const Communicator& comm) -> Result<void> {
    const int R = comm.ranks(), me = comm.rank();
    const auto sum = [R](Index i) {
      float s = 0;
      for (int r = 0; r < R; ++r) s += value(r, i);
      return s;
    };
    const auto sweep = [&](auto&& each) -> Result<void> {
      for (const Index count : {Index{0}, Index{1}, Index{7}, Index{1023}, largest}) {
        for (const int skew : {0, 4, 1}) {
          for (const bool in_place : {false, true}) {
            if (is_left_out(count, largest, skew, in_place)) continue;
            CCL_CHECK(each(count, skew, in_place));
            ++cases;
          }
        }
      }
      return {};
    };
    if constexpr (RunsOperation<Algo, AllReduce>) {
      using C = Collective<AllReduce, Algo, Proto, ChosenTransport>;
      CCL_TRY(auto c, C::create(comm));
      CCL_CHECK(sweep([&](Index n, int skew, bool in_place) {
        return Trial{n, skew, 1, 1, in_place}.run(
            comm, [&](const float* s, float* r) { return c(s, r, n); }, sum, 0, 0, wrong);
      }));
    }
    if constexpr (RunsOperation<Algo, Reduce>) {
      using C = Collective<Reduce, Algo, Proto, ChosenTransport>;
      CCL_TRY(auto c, C::create(comm));
      CCL_CHECK(sweep([&](Index n, int skew, bool in_place) {
        const int root = int(n + skew) % R;
        return Trial{n, skew, 1, 1, in_place}.run(
            comm, [&](const float* s, float* r) { return c(s, r, n, Sum{}, root); },
            [&](Index i) { return me == root ? sum(i) : -1.f; }, 0, 0, wrong);
      }));
    }
    if constexpr (RunsOperation<Algo, Broadcast>) {
      using C = Collective<Broadcast, Algo, Proto, ChosenTransport>;
      CCL_TRY(auto c, C::create(comm));
      CCL_CHECK(sweep([&](Index n, int skew, bool in_place) {
        const int root = int(n + skew) % R;
        return Trial{n, skew, 1, 1, in_place}.run(
            comm, [&](const float* s, float* r) { return c(s, r, n, root); },
            [&](Index i) { return value(root, i); }, 0, 0, wrong);
      }));
    }
    if constexpr (RunsOperation<Algo, AllGather>) {
      using C = Collective<AllGather, Algo, Proto, ChosenTransport>;
      CCL_TRY(auto c, C::create(comm));
      CCL_CHECK(sweep([&](Index n, int skew, bool in_place) {
        return Trial{n, skew, 1, R, in_place}.run(
            comm, [&](const float* s, float* r) { return c(s, r, n); },
            [&](Index i) { return value(int(i / n), i % n); }, 0, me, wrong);
      }));
    }
    if constexpr (RunsOperation<Algo, ReduceScatter>) {
      using C = Collective<ReduceScatter, Algo, Proto, ChosenTransport>;
      CCL_TRY(auto c, C::create(comm));
      CCL_CHECK(sweep([&](Index n, int skew, bool in_place) {
        return Trial{n, skew, R, 1, in_place}.run(
            comm, [&](const float* s, float* r) { return c(s, r, n); },
            [&](Index i) { return sum(me * n + i); }, me, 0, wrong);
      }));
    }
    if constexpr (RunsOperation<Algo, AllToAll>) {
      using C = Collective<AllToAll, Algo, Proto, ChosenTransport>;
      CCL_TRY(auto c, C::create(comm));
      CCL_CHECK(sweep([&](Index n, int skew, bool) {
        return Trial{n, skew, R, R, false}.run(
            comm, [&](const float* s, float* r) { return c(s, r, n); },
            [&](Index i) { return value(int(i / n), me * n + i % n); }, 0, 0, wrong);
      }));
    }
    if constexpr (RunsOperation<Algo, Gather>) {
      using C = Collective<Gather, Algo, Proto, ChosenTransport>;
      CCL_TRY(auto c, C::create(comm));
      CCL_CHECK(sweep([&](Index n, int skew, bool in_place) {
        const int root = int(n + skew) % R;
        return Trial{n, skew, 1, R, in_place}.run(
            comm, [&](const float* s, float* r) { return c(s, r, n, root); },
            [&](Index i) { return me == root ? value(int(i / n), i % n) : -1.f; }, 0, me, wrong);
      }));
    }
    if constexpr (RunsOperation<Algo, Scatter>) {
      using C = Collective<Scatter, Algo, Proto, ChosenTransport>;
      CCL_TRY(auto c, C::create(comm));
      CCL_CHECK(sweep([&](Index n, int skew, bool in_place) {
        const int root = int(n + skew) % R;
        return Trial{n, skew, R, 1, in_place}.run(
            comm, [&](const float* s, float* r) { return c(s, r, n, root); },
            [&](Index i) { return value(root, me * n + i); }, me, 0, wrong);
      }));
    }
    if constexpr (RunsOperation<Algo, AllToAllV>) {
      // Rank r sends r + p + n elements to rank p.
      using C = Collective<AllToAllV, Algo, Proto, ChosenTransport>;
      CCL_TRY(auto c, C::create(comm));
      for (const Index n : {Index{0}, Index{5}, largest / 8}) {
        std::vector<Index> counts(R), offsets(R);
        Index total = 0;
        for (int p = 0; p < R; ++p) {
          counts[p] = me + p + n;
          offsets[p] = total;
          total += counts[p];
        }
        std::vector<float> send(total), recv(total, -1.f);
        for (Index i = 0; i < total; ++i) send[i] = value(me, i);
        CCL_CHECK(c(send.data(), counts, offsets, recv.data(), counts, offsets));
        for (int p = 0; p < R; ++p) {
          Index there = 0;  // where rank p's run for me begins in its buffer
          for (int q = 0; q < me; ++q) there += p + q + n;
          for (Index i = 0; i < counts[p]; ++i) {
            if (recv[offsets[p] + i] != value(p, there + i)) ++wrong;
          }
        }
        ++cases;
      }
    }
    if constexpr (RunsOperation<Algo, SendRecv>) {
      // To everyone, in another order on every rank, two messages each; then around a ring.
      using C = Collective<SendRecv, Algo, Proto, ChosenTransport>;
      CCL_TRY(auto c, C::create(comm));
      for (const Index n : {Index{1}, largest}) {
        std::vector<float> send(n), ring(n);
        for (Index i = 0; i < n; ++i) send[i] = value(me, i);
        std::vector<std::vector<float>> recv(2 * R, std::vector<float>(n));
        std::vector<typename C::P2pOp> p2p_ops;
        for (int k = 0; k < 2 * R; ++k) {
          if (me % 2 != 0) break;
          p2p_ops.push_back(C::send_message(send.data(), n - k / R, k % R));
        }
        for (int k = 2 * R - 1; k >= 0; --k) {
          p2p_ops.push_back(C::recv_message(recv[k].data(), n - (2 * R - 1 - k) / R, k % R));
        }
        if (me % 2 != 0) {
          for (int k = 0; k < 2 * R; ++k) {
            p2p_ops.push_back(C::send_message(send.data(), n - k / R, k % R));
          }
        }
        CCL_CHECK(c.group(p2p_ops));
        for (int k = 0; k < 2 * R; ++k) {
          for (Index i = 0; i < n - (2 * R - 1 - k) / R; ++i) {
            if (recv[k][i] != value(k % R, i)) ++wrong;
          }
        }
        CCL_CHECK(c(send.data(), n, (me + 1) % R, ring.data(), n, (me + R - 1) % R));
        for (Index i = 0; i < n; ++i) {
          if (ring[i] != value((me + R - 1) % R, i)) ++wrong;
        }
        cases += 2;
      }
    }
    return {};
  });
  REQUIRE(wrong == 0);
  return cases / int(comms.size());
}

/// 64 MiB once, in place.
template <class Op, class Algo, class Proto>
void run_large(const std::vector<Communicator>& comms) {
  on_all(comms, [](const Communicator& comm) -> Result<void> {
    using C = Collective<Op, Algo, Proto, ChosenTransport>;
    CCL_TRY(auto c, C::create(comm));
    const int R = comm.ranks(), me = comm.rank();
    const Index count = Index{16} << 20;
    std::vector<float> x(count), y(Op::reduces ? 0 : count);
    for (Index i = 0; i < count; ++i) x[i] = float((i + me) % 1024);
    if constexpr (Op::reduces) {
      CCL_CHECK(c(x.data(), x.data(), count));
    } else {
      CCL_CHECK(c(x.data(), y.data(), count / R));
    }
    for (Index i = 0; i < count; ++i) {
      float want = 0;
      if constexpr (Op::reduces) {
        for (int r = 0; r < R; ++r) want += float((i + r) % 1024);
      } else {
        const Index run = count / R;
        want = float((me * run + i % run + i / run) % 1024);
      }
      if ((Op::reduces ? x : y)[i] != want) {
        return fail(Errc::internal, fmt::format("element {} of {}: {} instead of {}", i, c.name(),
                                                (Op::reduces ? x : y)[i], want));
      }
    }
    return {};
  });
}

}  // namespace ccl::test
