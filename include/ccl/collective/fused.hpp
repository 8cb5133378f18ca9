#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/choose/forward.hpp>
#include <ccl/collective/collective.hpp>
#include <ccl/detail/compose/operation_call.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/rows/fused_op.hpp>
#include <ccl/detail/rows/prims.hpp>
#include <ccl/detail/rows/refusals.hpp>
#include <ccl/detail/rows/registry.hpp>
#include <ccl/detail/runtime/guarded.hpp>
#include <ccl/epilogue/plain_rows.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace ccl {
namespace detail {
template <>
struct RefusesBuffers<AllReduceRows> {
  template <class Input, class... Rest>
    requires(!std::is_pointer_v<std::decay_t<Input>>)
  [[nodiscard]] Result<void> operator()(Input&&, Index, Index, Rest&&...) const {
    return refuse_buffers<Input, Input>();
  }
};
template <class W>
concept CarriesRows = requires {
  { W::name } -> cuda::std::convertible_to<const char*>;
  { W::per_cell } -> cuda::std::convertible_to<int>;
  { W::max_lanes } -> cuda::std::convertible_to<int>;
  { W::data_cells(60) } -> cuda::std::same_as<int>;
};
template <class E, class Row>
concept TakesRows = requires(const E epilogue, Row& row) { epilogue(row, epilogue.ahead(row)); };
/// Minimal row that an epilogue must accept.
using AnyRow = RowPart<SoloLane, LL128::Lane<SoloLane, 1>, 4, 15, 1>;
}  // namespace detail

/// True if `P` can transform the input of a `Fused`. It is a trivially copyable value with
/// - `Element`: type of the input.
/// - `Wire`: row format on the wire (`PlainRows`, `Fp8Rows`).
/// - `float operator()(float value, Index row, int column) const`: optional; maps each value before
///   it is sent.
template <class P>
concept Prologue = cuda::std::is_trivially_copyable_v<P> && detail::CarriesRows<typename P::Wire> &&
                   cuda::std::is_trivially_copyable_v<typename P::Element>;

/// True if `E` can finish a reduced row of a `Fused`. It is a trivially copyable value with
/// - `epilogue(row, ahead)`: called for each lane's `RowPart`. The lanes of one block hold the row
///   in registers.
/// - `epilogue.ahead(row)`: called before the wait for the peers; it returns `ahead`.
/// - `bool aligned() const`: optional; the call fails if it returns false.
template <class E>
concept Epilogue = cuda::std::is_trivially_copyable_v<E> && detail::TakesRows<E, detail::AnyRow>;

/// All-reduce of the rows of a matrix in one kernel, from the input to the stores of the epilogue.
/// Every rank has a summand of the matrix, and every rank finishes all of its rows. Example:
/// `Fused<AsIs<bfloat16>, Collective<AllReduce, OneShot, LL128, DefaultTransport>,
/// AddRmsNorm<bfloat16>>`. See docs/guide/fused.md.
template <class Before, class C, class After>
class Fused {
  static_assert(!cuda::std::is_same_v<C, C>,
                "ccl: Fused takes Collective<AllReduce, OneShot or TwoShot, LL or LL128, "
                "a transport>");
};

template <class Before, class Algo, class Proto, class Transport, class After>
class Fused<Before, Collective<AllReduce, Algo, Proto, Transport>, After>
    : public detail::Composition<detail::FusedOp<Before, After>, Algo, Proto,
                                 detail::exec_spaces<Transport>()>,
      public detail::RefusesBuffers<AllReduceRows> {
  static_assert(detail::check_collective<AllReduceRows, Algo, Proto, Transport>());
  static_assert(Prologue<Before>,
                "ccl: the first argument of Fused must be a prologue (AsIs, QuantizeFp8, or a "
                "model of Prologue); the compiler's notes name the missing member");
  static_assert(Epilogue<After>,
                "ccl: the third argument of Fused must be an epilogue (StoreRows, AddRmsNorm, or a "
                "model of Epilogue); the compiler's notes name the missing member");
  using Base = detail::Composition<detail::FusedOp<Before, After>, Algo, Proto,
                                   detail::exec_spaces<Transport>()>;
  using Kernels = detail::RowKernels<Algo, Proto, Before, After>;
  using T = typename Before::Element;

 public:
  using detail::RefusesBuffers<AllReduceRows>::operator();
  /// Creates the collective. Collective. `plan` must be equal on all ranks; one of its slots is one
  /// half of the scratch memory.
  [[nodiscard]] static Result<Fused> create(const Communicator& comm,
                                            std::optional<Plan> plan = {}) {
    return detail::guarded(comm, [&]() -> Result<Fused> {
      detail::register_kernels<Kernels>();
      CCL_TRY(auto connections, Base::template make_connections<Transport>(comm, plan));
      return Fused{std::move(connections)};
    });
  }

  /// Runs the all-reduce of `rows` rows of `length` elements. All ranks must pass the same `rows`
  /// and `length`; `length` must be a multiple of 8. All matrices must be aligned to 16 bytes. The
  /// epilogue may store into the input.
  [[nodiscard]] Result<void> operator()(const T* input, Index rows, Index length,
                                        const After& epilogue, Stream stream = {}) const {
    return (*this)(Before{}, input, rows, length, epilogue, stream);
  }
  [[nodiscard]] Result<void> operator()(const Before& prologue, const T* input, Index rows,
                                        Index length, const After& epilogue,
                                        Stream stream = {}) const {
    return detail::guarded(this->connections_->comm(), [&]() -> Result<void> {
      const Communicator& comm = this->connections_->comm();
      CCL_CHECK(detail::check_buffer(comm, "input", input, rows * length, sizeof(T)));
      if (stream.recorder() != nullptr) return refuse("takes no part in a group", "call it alone");
      if (rows >= Index{1} << 31) return refuse("takes fewer than 2^31 rows", "call it for parts");
      if (rows == 0) return detail::check_ready(this->connections_->comm());
      if (length < 8 || length % 8 != 0 || reinterpret_cast<std::uintptr_t>(input) % 16 != 0) {
        return refuse(detail::rows_not_aligned(length, input), "pad the rows");
      }
      if constexpr (requires { epilogue.aligned(); }) {
        if (!epilogue.aligned()) {
          return refuse("was given an epilogue with a buffer that is not aligned to 16 bytes",
                        "align all of its buffers");
        }
      }
      detail::RowWork<Before, After> work{prologue, epilogue};
      work.input = input;
      work.rows = int(rows);
      constexpr Index any_more = Index{1} << 30;  // is refused below, with the maximum there
      work.length = int(length < any_more ? length : any_more);
      work.peers.ranks = comm.ranks();
      if (this->connections_->on_device()) return launch(work, length, stream);
      // There is one rank; `create` refuses others on CPUs.
      constexpr int tiles = 512;
      using Body = detail::RowBody<AllReduceRows, OneShot, Proto, Before, After, 1, tiles>;
      using Prims = typename Body::template Prims<detail::SoloLane>;
      if (Prims::tiles_of(work.length) > tiles) {
        return too_long(length, Index{tiles} * Prims::tile_elements);
      }
      return detail::queue_on_host(*this->connections_, stream, [work]() -> Result<void> {
        detail::HostExecutor::run<detail::SoloLane>(1, Body{work});
        return {};
      });
    });
  }

 private:
  explicit Fused(std::shared_ptr<detail::Connections> connections) : Base{std::move(connections)} {}

  template <class Work>
  [[nodiscard]] Result<void> launch(Work& work, Index length, Stream stream) const {
    detail::Connections& connections = *this->connections_;
    if (Kernels::launch == nullptr) return fail(detail::no_device_code(connections));
    if (length > Kernels::max_length) return too_long(length, Kernels::max_length);
    const int ranks = work.peers.ranks;
    if (ranks == 1) {
      CCL_CHECK(detail::check_ready(connections.comm()));
      const int code = Kernels::launch(work, {connections.comm().device(), stream.cuda(), 128});
      if (code != 0) return fail(detail::cuda_failed(connections, code));
      return {};
    }
    if (Kernels::row_packets(work.length, ranks) > connections.peer_memory().view().half_packets) {
      return refuse(detail::rows_beyond_scratch(
                        connections.peer_memory().view().half_packets * Index{sizeof(Packet)},
                        Kernels::row_packets(work.length, ranks) * Index{sizeof(Packet)}),
                    "give create a plan with larger slots");
    }
    const auto info = detail::call_info<T>(detail::FusedOp<Before, After>::name,
                                           Index{work.rows} * work.length, -1);
    CCL_TRY(auto begun, detail::Launch::begin_on_device(this->connections_, info, stream));
    work.peers = connections.peer_memory().view();
    work.epoch = connections.peer_memory().epoch();
    work.watch = connections.calls().watch;
    return begun.finish(Kernels::launch(work, begun.target()));
  }
  [[nodiscard]] Result<void> refuse(const std::string& what, const char* help) const {
    return fail(detail::rows_refused(this->name(), this->connections_->comm(), what, help));
  }
  [[nodiscard]] Result<void> too_long(Index length, Index most) const {
    return refuse(detail::rows_too_long(length, most),
                  "cut the rows, or reduce and finish them by two kernels");
  }
};

/// Fused all-reduce that uses OneShot or TwoShot, whichever is faster for the bytes of a call. All
/// ranks choose alike, because only `rows`, `length` and the number of ranks decide. Both have
/// scratch memory.
template <class Before, class Proto, class Transport, class After>
class Fused<Before, Collective<AllReduce, Auto, Proto, Transport>, After>
    : public detail::RefusesBuffers<AllReduceRows> {
  using Packets = cuda::std::conditional_t<cuda::std::is_same_v<Proto, Auto>, LL128, Proto>;
  template <class Algo>
  using By = Fused<Before, Collective<AllReduce, Algo, Packets, Transport>, After>;
  using T = typename Before::Element;

 public:
  using detail::RefusesBuffers<AllReduceRows>::operator();
  /// Creates both. Collective.
  [[nodiscard]] static Result<Fused> create(const Communicator& comm,
                                            std::optional<Plan> plan = {}) {
    return detail::guarded(comm, [&]() -> Result<Fused> {
      CCL_TRY(auto one, By<OneShot>::create(comm, plan));
      // With two ranks both send the same amount, and TwoShot takes two hops.
      if (comm.ranks() <= 2) return Fused{std::move(one), {}, comm.ranks()};
      CCL_TRY(auto two, By<TwoShot>::create(comm, plan));
      return Fused{std::move(one), std::move(two), comm.ranks()};
    });
  }
  [[nodiscard]] Result<void> operator()(const T* input, Index rows, Index length,
                                        const After& epilogue, Stream stream = {}) const {
    return (*this)(Before{}, input, rows, length, epilogue, stream);
  }
  [[nodiscard]] Result<void> operator()(const Before& prologue, const T* input, Index rows,
                                        Index length, const After& epilogue,
                                        Stream stream = {}) const {
    if (takes_two_hops(rows, length)) {
      return (*two_)(prologue, input, rows, length, epilogue, stream);
    }
    return one_(prologue, input, rows, length, epilogue, stream);
  }
  /// Returns the name of the composition that a call of this shape runs.
  const std::string& name(Index rows, Index length) const {
    return takes_two_hops(rows, length) ? two_->name() : one_.name();
  }

 private:
  Fused(By<OneShot> one, std::optional<By<TwoShot>> two, int ranks)
      : one_{std::move(one)}, two_{std::move(two)}, ranks_{ranks} {}

  bool takes_two_hops(Index rows, Index length) const {
    if (!two_) return false;
    const double bytes = double(rows) * double(length) * 8 / Before::Wire::per_cell;
    const auto rates = detail::rates(
        detail::Path::nvlink, detail::Mover::peers,
        cuda::std::is_same_v<Packets, LL> ? detail::Packing::ll : detail::Packing::ll128);
    const auto us = [&](const CostTerms& cost_terms) {
      return detail::predict_us(rates, cost_terms, bytes, 128);
    };
    return us(TwoShot::cost_terms<AllReduce>(ranks_)) < us(OneShot::cost_terms<AllReduce>(ranks_));
  }

  By<OneShot> one_;
  std::optional<By<TwoShot>> two_;
  int ranks_;
};

}  // namespace ccl
