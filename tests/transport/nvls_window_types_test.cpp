// Every type and functor that switches have, with buffers in windows that emulated multicast memory
// reaches. Ranks are threads; counts, places and plans alternate. What multicast cannot reach is
// copied.
#include <ccl/algo/nvls.hpp>
#include <ccl/comm/window.hpp>
#include <ccl/transport/nvls.hpp>

#include "support/types_suite.hpp"

namespace ccl::test {
namespace {

/// Several parts for the largest counts that are copied, or one.
Plan plan_of_scratch(int level) {
  Plan plan;
  plan.slot_count = 2;
  plan.slot_bytes = level == 0 ? 4096 : 1 << 20;
  plan.channels = 1 + level;
  return plan;
}
constexpr Index packet = 16;
Index whole_packets(Index bytes) {
  return (bytes + packet - 1) / packet * packet;
}

/// Memory of a window: a send buffer and a receive buffer with guards around, or one for both.
class Buffers {
 public:
  Buffers(Index send_bytes, Index recv_bytes, Index skew, bool in_place, Index in_place_at)
      : send_{room + skew},
        recv_{in_place ? send_ + in_place_at : whole_packets(send_ + send_bytes) + room + skew},
        send_end_{send_ + send_bytes},
        recv_end_{recv_ + recv_bytes},
        packets_(std::size_t((std::max(send_end_, recv_end_) + room) / packet + 1), guard) {}
  char* data() { return reinterpret_cast<char*>(packets_.data()); }
  Index bytes() const { return Index(packets_.size()) * packet; }
  char* send() { return data() + send_; }
  char* recv() { return data() + recv_; }
  bool sound() {
    for (Index i = 0; i < bytes(); ++i) {
      const bool of_send = i >= send_ && i < send_end_, of_recv = i >= recv_ && i < recv_end_;
      if (!of_send && !of_recv && data()[i] != 0x5a) return false;
    }
    return true;
  }

 private:
  static constexpr Index room = 64;
  static constexpr Packet guard{{0x5a5a5a5a5a5a5a5a, 0x5a5a5a5a5a5a5a5a}};
  Index send_, recv_, send_end_, recv_end_;
  std::vector<Packet> packets_;
};

template <class Op, class F, class T>
Result<void> reduce_in_windows(const Communicator& comm, const Case& row, const void* send,
                               void* recv, const void* scalar_at) {
  using C = Collective<Op, Nvls, Simple, NvlsTransport>;
  constexpr bool scatters = std::is_same_v<Op, ReduceScatter>;
  constexpr Index size = sizeof(T);
  const int ranks = comm.ranks(), me = comm.rank();
  // Runs of whole packets, or of the count; at the begin of a packet, or an element behind.
  const Index given = row.count();
  const Index n = row.level[skew] == 1 ? given : whole_packets(given * size) / size;
  const Index shift = row.level[skew] == 2 ? size : 0;
  const Index runs = scatters ? ranks : 1;
  const bool in_place = row.level[test::in_place] != 0;
  Buffers memory{runs * n * size, n * size, shift, in_place, scatters ? me * n * size : 0};
  std::memset(memory.send(), 0, std::size_t(runs * n * size));
  for (Index run = 0; run < runs; ++run) {
    std::memcpy(memory.send() + run * n * size, static_cast<const char*>(send) + run * given * size,
                std::size_t(given * size));
  }
  CCL_TRY(auto c, C::create(comm, plan_of_scratch(row.level[plan])));
  CCL_TRY(const Window window, Window::create(comm, memory.data(), memory.bytes()));
  const F op = functor_of<F, T>(row.level[test::memory] != 0 ? scalar_at : nullptr);
  CCL_CHECK(
      c(reinterpret_cast<const T*>(memory.send()), reinterpret_cast<T*>(memory.recv()), n, op));
  if (n > 0) {
    const bool fits = n * size % packet == 0 && shift % packet == 0;
    const bool loads = fits && !detail::prepares<detail::Reduction<F, T>>();
    const bool stores = fits && !scatters;
    const std::string want = loads && stores ? "loaded from windows, stored to windows"
                             : loads         ? "loaded from windows"
                             : stores        ? "stored to windows"
                                             : "copied";
    CCL_TRY(const std::string way, c.latest_way());
    if (way != want) return fail(Errc::internal, "it was " + way + ", not " + want);
  }
  CCL_CHECK(window.close());
  std::memcpy(recv, memory.recv(), std::size_t(given * size));
  return memory.sound() ? Result<void>{} : fail(Errc::internal, "a write beside the buffers");
}

/// One operation at each number of ranks, count and place; other factors alternate.
template <class Op, class F, class T>
int run_operation(const std::vector<std::vector<Communicator>>& comms, Shape shape) {
  int ran = 0;
  for (const int ranks : {2, 3, 8}) {
    for (int n = 0; n < int(counts.size()); ++n) {
      for (int s = 0; s < (ranks == 3 ? 3 : 1); ++s, ++ran) {
        Case row{};
        row.level[rank_count] = ranks - 1;
        row.level[count] = n;
        row.level[skew] = s;
        row.level[plan] = n / 2 % 2;
        row.level[in_place] = (n + ranks / 2 + s) % 2;
        row.level[rough] = is_float<T> && n % 2 == 0 && !is_one_of<F, Min, Max>;
        row.level[memory] = n % 2;
        INFO(detail::type_label<T>()
             << ' ' << detail::redop_label<F>() << ", " << Op::name << ", " << ranks << " ranks, "
             << row.count() << " elements, place " << s);
        run_case(comms[size_t(ranks)], row, shape, rules<T, F>(), reduce_in_windows<Op, F, T>);
      }
    }
  }
  return ran;
}
template <class F, int N>
int run_type(const std::vector<std::vector<Communicator>>& comms) {
  using T = TypeAt<N>;
  if constexpr (!detail::SwitchOp<F, T>::possible) {
    return 0;
  } else {
    int ran = run_operation<AllReduce, F, T>(comms, Shape::all_reduce);
    // The sums of both operations are one function.
    if constexpr (is_one_of<F, Sum, Max>) {
      ran += run_operation<ReduceScatter, F, T>(comms, Shape::reduce_scatter);
    }
    return ran;
  }
}
template <class F>
int run_functor(const std::vector<std::vector<Communicator>>& comms) {
  return [&]<int... N>(std::integer_sequence<int, N...>) {
    return (run_type<F, N>(comms) + ...);
  }(std::make_integer_sequence<int, int(std::tuple_size_v<Types>)>{});
}

}  // namespace
}  // namespace ccl::test

TEST_CASE("Nvls in windows: the types and reductions of switches") {
  using namespace ccl::test;
  const auto comms = communicators();
  const int ran = run_functor<ccl::Sum>(comms) + run_functor<ccl::Avg>(comms) +
                  run_functor<ccl::PreMulSum>(comms) + run_functor<ccl::Min>(comms) +
                  run_functor<ccl::Max>(comms);
  WARN(ran << " cases");
}
