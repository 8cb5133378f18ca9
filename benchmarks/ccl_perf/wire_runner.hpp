#pragma once

#include <ccl/algo/hierarchical.hpp>
#include <ccl/collective.hpp>
#include <ccl/hierarchical.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/sentinel.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/any_of.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runner.hpp"

// Each generated file includes the header of its own algorithm.
namespace ccl {
struct OneShot;
struct Ring;
}  // namespace ccl

namespace ccl::perf {

/// Kernels do not depend on the transport, so one composition serves all of them. CCL_TRANSPORT
/// selects the members at run time.
using AnyTransport = DefaultTransport;

// Compositions on levels, named without commas.
using Rails = Hierarchical<Ring, Ring>;
using PeerRails = Hierarchical<With<OneShot, LL128>, Ring>;

/// Functor that ccl does not contain.
struct Own {
  template <class A>
  CCL_HD constexpr A operator()(const A& a, const A& b) const {
    return a < b ? b : a;
  }
};

/// Calls `f(functor)` with the functor of `redop`.
template <class F>
decltype(auto) with_redop(RedOp redop, F&& f) {
  switch (redop) {
    case RedOp::prod:
      return f(Prod{});
    case RedOp::min:
      return f(Min{});
    case RedOp::max:
      return f(Max{});
    case RedOp::avg:
      return f(Avg{});
    case RedOp::mulsum:
      return f(PreMulSum{2});
    case RedOp::own:
      return f(Own{});
    case RedOp::sum:
      break;
  }
  return f(Sum{});
}

/// True if `names`, separated by commas, contains `name` or "all".
constexpr bool listed(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const std::string_view one = names.substr(0, names.find(','));
    if (one == name || one == "all") return true;
    names.remove_prefix(std::min(one.size() + 1, names.size()));
  }
  return false;
}
/// True if this program contains the kernels for T and F.
template <class T, class F>
constexpr bool carried() {
  std::string_view redop = redop_names[int(RedOp::own)];
  if constexpr (requires { F::name; }) redop = F::name;
  return listed(CCL_PERF_TYPES, ccl::name(data_type_of<T>)) && listed(CCL_PERF_REDOPS, redop);
}

template <class Op, class Algo, class Proto>
class WireRunner final : public Runner {
  using Composed = Collective<Op, Algo, Proto, AnyTransport>;

 public:
  explicit WireRunner(Composed collective) : collective_{std::move(collective)} {}

  const Plan& plan() const override { return collective_.plan(); }

  Result<void> run(const Call& call) const override {
    if constexpr (Op::reduces) {
      return with_type(call.type, [&]<class T>(TypeTag<T>) -> Result<void> {
        return with_redop(call.redop, [&](auto op) -> Result<void> {
          if constexpr (!detail::runs_reduction<Algo, Proto, decltype(op), T>()) {
            return fail(
                Errc::not_supported,
                fmt::format("{}/{} does not run {} of {}; choose another composition", Algo::name,
                            Proto::name, redop_names[int(call.redop)], ccl::name(call.type)));
          } else if constexpr (carried<T, decltype(op)>()) {
            return reduce(reinterpret_cast<const T*>(call.send), reinterpret_cast<T*>(call.recv),
                          call, op);
          } else {
            return fail(Errc::not_supported,
                        fmt::format("this ccl_perf does not reduce {} with {}; configure with "
                                    "-DCCL_PERF_TYPES and -DCCL_PERF_REDOPS",
                                    ccl::name(call.type), redop_names[int(call.redop)]));
          }
        });
      });
    } else {
      return move(call, size_of(call.type));
    }
  }

 private:
  template <class T, class F>
  Result<void> reduce(const T* send, T* recv, const Call& call, F op) const {
    if constexpr (Op::rooted) {
      return collective_(send, recv, call.count, op, call.root, call.stream);
    } else {
      return collective_(send, recv, call.count, op, call.stream);
    }
  }

  Result<void> move(const Call& call, Index size) const {
    const Index bytes = call.count * size;
    if constexpr (cuda::std::is_same_v<Op, AllToAllV>) {
      const std::span<const Index> given[4] = {call.send_counts, call.send_offsets,
                                               call.recv_counts, call.recv_offsets};
      for (int i = 0; i < 4; ++i) {
        scaled_[i].clear();
        for (const Index n : given[i]) scaled_[i].push_back(n * size);
      }
      return collective_(call.send, scaled_[0], scaled_[1], call.recv, scaled_[2], scaled_[3],
                         call.stream);
    } else if constexpr (cuda::std::is_same_v<Op, SendRecv>) {
      return collective_(call.send, bytes, call.next, call.recv, bytes, call.prev, call.stream);
    } else if constexpr (Op::rooted) {
      return collective_(call.send, call.recv, bytes, call.root, call.stream);
    } else {
      return collective_(call.send, call.recv, bytes, call.stream);
    }
  }

  Composed collective_;
  mutable std::vector<Index> scaled_[4];  // counts and offsets of AllToAllV, in bytes
};

template <class Op, class Algo, class Proto>
Result<std::unique_ptr<Runner>> make_runner(const Communicator& comm, std::optional<Plan> plan) {
  CCL_TRY(auto collective, Collective<Op, Algo, Proto, AnyTransport>::create(comm, plan));
  return std::make_unique<WireRunner<Op, Algo, Proto>>(std::move(collective));
}

}  // namespace ccl::perf
