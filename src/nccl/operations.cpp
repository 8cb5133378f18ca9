#include "nccl/operations.hpp"

#include <ccl/detail/base/spare.hpp>

#include <fmt/format.h>

#include <optional>
#include <tuple>

#include "comm/peer_waits.hpp"
#include "nccl/contents.hpp"
#include "nccl/devices.hpp"
#include "nccl/reduce.hpp"

namespace ccl::detail::nccl {
namespace {

template <class T, class... Ts>
constexpr bool listed(ccl::Types<Ts...>) {
  return (std::is_same_v<T, Ts> || ...);
}

class Made : public Operations {
 public:
  explicit Made(const Communicator& comm) : comm_{comm} {}

  template <class Op>
  Result<const Collective<Op>*> get() {
    auto& one = std::get<std::optional<Collective<Op>>>(made_);
    if (!one) {
      CCL_CHECK(check_may_wait());
      CCL_TRY(auto made, Collective<Op>::create(comm_));
      one.emplace(std::move(made));
    }
    return &*one;
  }

  Result<void> run(const Call& call) override {
    switch (call.kind) {
      case Kind::all_reduce:
        return reduce<AllReduce>(call);
      case Kind::reduce_scatter:
        return reduce<ReduceScatter>(call);
      case Kind::reduce:
        return reduce<Reduce>(call);
      case Kind::all_gather:
        return move<AllGather>(call);
      case Kind::broadcast:
        return move<Broadcast>(call, call.root);
      case Kind::all_to_all:
        return move<AllToAll>(call);
      case Kind::gather:
        return move<Gather>(call, call.root);
      case Kind::scatter:
        return move<Scatter>(call, call.root);
      case Kind::send:
      case Kind::recv:
        break;
    }
    return exchange({&call, 1});
  }

  Result<double> predict(const Call& call) const override {
    switch (call.kind) {
      case Kind::all_reduce:
        return predict<AllReduce>(call);
      case Kind::reduce_scatter:
        return predict<ReduceScatter>(call, comm_.ranks());
      case Kind::reduce:
        return predict<Reduce>(call);
      case Kind::all_gather:
        return predict<AllGather>(call, comm_.ranks());
      case Kind::broadcast:
        return predict<Broadcast>(call);
      case Kind::all_to_all:
        return predict<AllToAll>(call, comm_.ranks());
      case Kind::gather:
        return predict<Gather>(call, comm_.ranks());
      case Kind::scatter:
        return predict<Scatter>(call, comm_.ranks());
      case Kind::send:
      case Kind::recv:
        break;
    }
    return predict<SendRecv>(call);
  }

  Result<void> exchange(std::span<const Call> messages) override {
    using Messages = Collective<SendRecv>;
    SpareVector<Messages::P2pOp> p2p_ops;
    const cudaStream_t stream = messages.front().stream;
    for (const Call& one : messages) {
      const bool sends = one.kind == Kind::send;
      p2p_ops->push_back({sends, sends ? const_cast<void*>(one.send) : one.recv, one.count,
                          size_of(one.type), one.root});
      if (one.stream != stream) CCL_CHECK(put_after(stream, one.stream));
    }
    CCL_TRY(const auto* all, get<SendRecv>());
    CCL_CHECK(all->group(std::span<const Messages::P2pOp>{*p2p_ops}, Stream{stream},
                         detail::Overlaps::allowed));
    for (const Call& one : messages) {
      if (one.stream != stream) CCL_CHECK(put_after(one.stream, stream));
    }
    return {};
  }

 private:
  template <class Op>
  Result<double> predict(const Call& call, int times = 1) const {
    return Collective<Op>::predict(comm_, call.count * size_of(call.type) * times);
  }
  template <class Op>
  Result<void> reduce(const Call& call) {
    CCL_TRY(const auto* one, get<Op>());
    return with_type(call.type, [&]<class T>(TypeTag<T>) -> Result<void> {
      if constexpr (listed<T>(Types{})) {
        return nccl::reduce<Op, T>(*one, call);
      } else {
        return fail(Errc::not_supported,
                    fmt::format("there is no code for {} of {}; build with CCL_NCCL_TYPES=all",
                                Op::name, name(call.type)));
      }
    });
  }
  template <class Op, class... Root>
  Result<void> move(const Call& call, Root... root) {
    CCL_TRY(const auto* one, get<Op>());
    const auto by = [&]<class T>(TypeTag<T>) {
      return (*one)(static_cast<const T*>(call.send), static_cast<T*>(call.recv), call.count,
                    root..., Stream{call.stream});
    };
    // All types of a size are moved alike.
    switch (size_of(call.type)) {
      case 1:
        return by(TypeTag<std::uint8_t>{});
      case 2:
        return by(TypeTag<std::uint16_t>{});
      case 4:
        return by(TypeTag<std::uint32_t>{});
      default:
        return by(TypeTag<std::uint64_t>{});
    }
  }

  template <class... Ops>
  using OneOfEach = std::tuple<std::optional<Collective<Ops>>...>;
  Communicator comm_;
  OneOfEach<AllReduce, ReduceScatter, Reduce, AllGather, Broadcast, AllToAll, Gather, Scatter,
            SendRecv>
      made_;
};

}  // namespace

Result<std::unique_ptr<Operations>> Operations::create(const Communicator& comm) {
  auto made = std::make_unique<Made>(comm);
  CCL_CHECK(made->get<SendRecv>());
  return std::unique_ptr<Operations>{std::move(made)};
}

}  // namespace ccl::detail::nccl
