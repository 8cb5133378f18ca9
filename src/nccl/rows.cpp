// Fused all-reduces, and exchanges whose counts the GPU knows.
#include "nccl/abi/rows.hpp"

#include <ccl/ccl.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace ccl::detail::nccl {
namespace {

template <class T>
using Norm = Fused<AsIs<T>, Collective<AllReduce, Auto, LL128, DefaultTransport>, AddRmsNorm<T>>;

class Made final : public RowCalls {
 public:
  explicit Made(const Communicator& comm) : comm_{comm} {}

  Result<void> norm(const NormCall& call) override {
    switch (call.type) {
      case DataType::bfloat16:
        return norm_of<bfloat16>(call);
      case DataType::float16:
        return norm_of<float16>(call);
      default:
        return fail(Errc::not_supported,
                    fmt::format("there is no fused RMSNorm of {}; convert to bfloat16 or half",
                                name(call.type)));
    }
  }

  Result<void> exchange(const ExchangeCall& call) override {
    if (comm_.device() >= 0) return exchange_by(on_gpus_, call);
    return exchange_by(on_cpus_, call);
  }

 private:
  template <class T>
  Result<void> norm_of(const NormCall& call) {
    auto& one = std::get<std::optional<Norm<T>>>(norms_);
    if (!one) {
      CCL_TRY(auto made, Norm<T>::create(comm_));
      one.emplace(std::move(made));
    }
    const AddRmsNorm<T> after{static_cast<const T*>(call.residual), static_cast<T*>(call.sum),
                              static_cast<T*>(call.out), static_cast<const T*>(call.weight),
                              call.epsilon};
    return (*one)(static_cast<const T*>(call.input), call.rows, call.length, after,
                  Stream{call.stream});
  }

  template <class Exchange>
  Result<void> exchange_by(std::optional<Exchange>& one, const ExchangeCall& call) {
    if (!one) {
      CCL_TRY(auto made, Exchange::create(comm_));
      one.emplace(std::move(made));
    }
    return one->counted(static_cast<const std::uint8_t*>(call.send),
                        static_cast<std::uint8_t*>(call.recv), call.rows, Stream{call.stream});
  }

  Communicator comm_;
  std::tuple<std::optional<Norm<bfloat16>>, std::optional<Norm<float16>>> norms_;
  std::optional<Collective<AllToAllV, OneShot, LL128>> on_gpus_;
  std::optional<Collective<AllToAllV, Pairwise, Simple>> on_cpus_;
};

}  // namespace

std::unique_ptr<RowCalls> RowCalls::create(const Communicator& comm) {
  return std::make_unique<Made>(comm);
}

}  // namespace ccl::detail::nccl
