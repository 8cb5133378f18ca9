#pragma once

// Collectives over wires on GPU lanes: every type, odd counts, and addresses that are aligned to
// elements only. Inputs change from launch to launch; outputs are poisoned and surrounded by
// guards.
#include <ccl/element/data_type.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <algorithm>

#include "world.cuh"

namespace ccl::test {

struct Wide {
  double value;
  long long index;
  float weight;
};
struct Later {
  CCL_HD Wide operator()(const Wide& a, const Wide& b) const { return a.value < b.value ? b : a; }
};

/// Small whole numbers, so that any order of summation gives the same bits in every type.
template <class T>
struct Values {
  using Reduce = Sum;
  static T make(int v) { return T(float(v)); }
  static int input(int rank, Index i, unsigned seed) {
    return int((unsigned(i) * 7u + unsigned(rank) * 13u + seed * 29u) % 5u) % 3;
  }
  static int combine(int a, int b) { return a + b; }
};
template <>
struct Values<Wide> {
  using Reduce = Later;
  static Wide make(int v) {
    Wide w;
    std::memset(&w, 0, sizeof w);  // padding is compared too
    w.value = v;
    w.index = v * 3;
    w.weight = float(v) / 2;
    return w;
  }
  static int input(int rank, Index i, unsigned seed) {
    return int((unsigned(i) * 5u + unsigned(rank) * 7u + seed) % 11u);
  }
  static int combine(int a, int b) { return std::max(a, b); }
};
template <class T>
constexpr const char* type_name() {
  if constexpr (has_data_type<T>) return name(data_type_of<T>).data();
  return "struct";
}

/// Every rank's input and output of `count` and more elements, `offset` elements into aligned
/// memory.
template <class T>
class Buffers {
 public:
  static constexpr Index guard = 64;
  Buffers(const World& world, Index in_count, Index out_count, Index offset, unsigned seed)
      : in_count_{in_count}, out_count_{out_count}, offset_{offset}, seed_{seed} {
    for (int r = 0; r < world.ranks(); ++r) {
      in_.emplace_back(world.gpu(r), size_t(in_count + guard) * sizeof(T));
      out_.emplace_back(world.gpu(r), size_t(out_count + guard * 2) * sizeof(T));
      std::vector<T> host(size_t(in_count + 1));
      for (Index i = 0; i < in_count; ++i) host[i] = Values<T>::make(Values<T>::input(r, i, seed));
      in_[r].put(host.data(), size_t(in_count) * sizeof(T), size_t(offset) * sizeof(T));
      MUST(cudaMemset(out_[r].data(), 0xa5, out_[r].bytes()));
    }
  }
  const T* in(int r) const { return in_[r].template as<T>() + offset_; }
  T* out(int r) const { return out_[r].template as<T>() + 16 + offset_; }
  /// Checks that element i represents the number `want(i)`, and that guards are unchanged.
  template <class F>
  bool holds(int r, Index count, F want) const {
    std::vector<T> host(size_t(out_count_ + guard * 2));
    out_[r].get(host.data(), out_[r].bytes());
    T poison;
    std::memset(&poison, 0xa5, sizeof poison);
    for (Index i = 0; i < Index(host.size()); ++i) {
      const Index at = i - 16 - offset_;
      const T expected = at >= 0 && at < count ? Values<T>::make(want(at)) : poison;
      if (std::memcmp(&host[i], &expected, sizeof(T)) != 0) {
        std::printf("rank %d element %ld of %ld differs\n", r, long(at), long(count));
        return false;
      }
    }
    return true;
  }
  int input(int r, Index i) const { return Values<T>::input(r, i, seed_); }
  int reduced(int ranks, Index i) const {
    int v = input(0, i);
    for (int r = 1; r < ranks; ++r) v = Values<T>::combine(v, input(r, i));
    return v;
  }

 private:
  Index in_count_, out_count_, offset_;
  unsigned seed_;
  std::vector<DeviceArray> in_, out_;
};

template <class Algo, class Proto, class Group>
class Suite {
 public:
  Suite(int ranks, int channels, Index slot_bytes, int slice_steps, int chunk_steps)
      : world_{ranks, channels, 8, slot_bytes, 2}, slice_{slice_steps}, chunk_{chunk_steps} {
    std::rotate(world_.order().begin(), world_.order().begin() + 1, world_.order().end());
  }

  template <class... Ts>
  void reductions() {
    (reduction<Ts>(), ...);
  }
  /// Collectives that move bytes, run on elements of T.
  template <class T>
  void moves() {
    const int R = world_.ranks();
    for (const Index count : counts) {
      for (const Index offset : {0, 1}) {
        const int root = int(++seed_) % R;
        const Index bytes = count * Index{sizeof(T)};
        Buffers<T> b{world_, count, count * R, offset, seed_};
        if constexpr (Algo::template supports<Broadcast>) {
          const bool ok = run<Broadcast, detail::Bytes>({}, root, [&](int r, auto& w) {
            w.input = b.in(r), w.output = b.out(r), w.layout = {bytes, 0, 0, false};
          });
          for (int r = 0; r < R; ++r) {
            tally_.check(ok && b.holds(r, count, [&](Index i) { return b.input(root, i); }),
                         "%s %s broadcast %s count %ld offset %ld", Algo::name, Proto::name,
                         type_name<T>(), long(count), long(offset));
          }
        }
        if constexpr (Algo::template supports<AllGather>) {
          Buffers<T> g{world_, count, count * R, offset, seed_};
          const bool ok = run<AllGather, detail::Bytes>({}, 0, [&](int r, auto& w) {
            w.input = g.in(r), w.output = g.out(r), w.layout = {bytes, 0, bytes, false};
          });
          for (int r = 0; r < R; ++r) {
            tally_.check(ok && g.holds(r, count * R,
                                       [&](Index i) { return g.input(int(i / count), i % count); }),
                         "%s %s all_gather %s count %ld offset %ld", Algo::name, Proto::name,
                         type_name<T>(), long(count), long(offset));
          }
        }
      }
    }
  }
  Tally& tally() { return tally_; }

 private:
  template <class T>
  void reduction() {
    using V = Values<T>;
    const int R = world_.ranks();
    using Red = detail::Reduction<typename V::Reduce, T>;
    const Red how{typename V::Reduce{}, R};
    for (const Index count : counts) {
      for (const Index offset : {0, 1}) {
        const int root = int(++seed_) % R;
        const auto say = [&](const char* op, bool ok) {
          tally_.check(ok, "%s %s %s %s count %ld offset %ld ranks %d", Algo::name, Proto::name, op,
                       type_name<T>(), long(count), long(offset), R);
        };
        {
          Buffers<T> b{world_, count, count, offset, seed_};
          const bool ok = run<AllReduce, Red>(how, 0, [&](int r, auto& w) {
            w.input = b.in(r), w.output = b.out(r);
            w.layout = {count, 0, 0, Algo::wires == 2};
          });
          for (int r = 0; r < R; ++r) {
            say("all_reduce", ok && b.holds(r, count, [&](Index i) { return b.reduced(R, i); }));
          }
          // Call in place.
          Buffers<T> p{world_, count, count, offset, seed_ + 1000};
          for (int r = 0; r < R; ++r) {
            MUST(cudaMemcpy(p.out(r), p.in(r), size_t(count) * sizeof(T), cudaMemcpyDefault));
          }
          const bool in_place = run<AllReduce, Red>(how, 0, [&](int r, auto& w) {
            w.input = w.output = p.out(r);
            w.layout = {count, 0, 0, Algo::wires == 2};
          });
          for (int r = 0; r < R; ++r) {
            say("all_reduce in place",
                in_place && p.holds(r, count, [&](Index i) { return p.reduced(R, i); }));
          }
        }
        if constexpr (Algo::template supports<Reduce>) {
          Buffers<T> b{world_, count, count, offset, seed_};
          const bool ok = run<Reduce, Red>(how, root, [&](int r, auto& w) {
            w.input = b.in(r), w.output = b.out(r), w.layout = {count, 0, 0, false};
          });
          for (int r = 0; r < R; ++r) {
            say("reduce",
                ok && b.holds(r, r == root ? count : 0, [&](Index i) { return b.reduced(R, i); }));
          }
        }
        if constexpr (Algo::template supports<ReduceScatter>) {
          Buffers<T> b{world_, count * R, count, offset, seed_};
          const bool ok = run<ReduceScatter, Red>(how, 0, [&](int r, auto& w) {
            w.input = b.in(r), w.output = b.out(r), w.layout = {count, count, 0, false};
          });
          for (int r = 0; r < R; ++r) {
            say("reduce_scatter",
                ok && b.holds(r, count, [&](Index i) { return b.reduced(R, r * count + i); }));
          }
        }
      }
    }
  }

  /// Launches the kernel for aligned buffers if those of all ranks are, like the public interface.
  template <class Op, class Red, class F>
  bool run(const Red& how, int root, F setup) {
    bool aligned = true;
    for (int r = 0; r < world_.ranks(); ++r) {
      detail::WireWork<Red> work{how};
      setup(r, work);
      aligned = aligned && alignment(work) == 16;
    }
    const bool ok = aligned
                        ? world_.run<Op, Algo, Proto, Group, 16>(how, slice_, chunk_, root, setup)
                        : world_.run<Op, Algo, Proto, Group, detail::any_align>(how, slice_, chunk_,
                                                                                root, setup);
    if (!ok) {
      std::printf("a lane gave up: peer %d, step %d\n", int(world_.failed().peer) - 1,
                  int(world_.failed().step));
      std::exit(1);
    }
    return ok;
  }

  static constexpr Index counts[6] = {1, 0, 17, 960, 4099, 100003};
  World world_;
  int slice_, chunk_;
  unsigned seed_ = 0;
  Tally tally_;
};

/// Two worlds, of as many ranks as there are GPUs and of more.
template <class Algo, class Proto, class Group>
int run_suites(const char* name) {
  Tally sum;
  for (const int ranks : {std::max(2, gpus()), 5}) {
    const int chunk = Algo::wires == 2 ? 4 : 1;
    Suite<Algo, Proto, Group> suite{ranks, 3, 8192, chunk / 2 > 0 ? chunk / 2 : 1, chunk};
    suite.template reductions<float, bfloat16, Wide>();
#if defined(CCL_TEST_ALL_TYPES)
    suite.template reductions<float16, float8_e4m3, cuda::std::int32_t, double>();
#endif
    suite.template moves<float>();
    suite.template moves<cuda::std::uint8_t>();
    sum.cases += suite.tally().cases;
    sum.wrong += suite.tally().wrong;
  }
  return sum.result(name);
}

}  // namespace ccl::test
