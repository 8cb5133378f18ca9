#include "nccl/fallback/reductions.hpp"

#include <ccl/detail/base/put_name.hpp>
#include <ccl/element/reduce_op.hpp>
#include <ccl/types/operations.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "comm/observe/outside_call.hpp"
#include "comm/state.hpp"
#include "nccl/abi/config.hpp"
#include "nccl/abi/types.hpp"

namespace ccl::detail::nccl {
namespace {

/// True if the bits of a reduction do not depend on the order of its additions.
bool is_exact(const Call& call) {
  return with_type(call.type, []<class T>(TypeTag<T>) { return std::is_integral_v<T>; });
}

constexpr const char* composition = "NCCL/NCCL";

/// Description of a reduction for the communicator's records.
Operation recorded(const Call& call) {
  Operation op;
  put_name(op.what, fmt::format("{}/{}",
                                call.kind == Kind::all_reduce       ? AllReduce::name
                                : call.kind == Kind::reduce_scatter ? ReduceScatter::name
                                                                    : Reduce::name,
                                composition));
  put_name(op.type, name(call.type));
  put_name(op.redop, call.op.name());
  op.count = call.count;
  if (call.kind == Kind::reduce) op.root = call.root;
  return op;
}

/// The reduction of a call, which the library makes if it has a scalar, for the time of the call.
class RealOp {
 public:
  explicit RealOp(const RealRank& rank) : rank_{rank} {}
  ~RealOp() {
    if (made_) (void)rank_.library().RedOpDestroy(op_, rank_.comm());
  }
  RealOp(const RealOp&) = delete;
  RealOp& operator=(const RealOp&) = delete;

  Result<ncclRedOp_t> of(const Call& call) {
    op_ = nccl_op(call.op.name());
    if (op_ != ncclNumOps) return op_;
    const auto scaled = call.op.as<PreMulSum>();
    if (!scaled) return fail(Errc::internal, "a reduction without its scalar");
    CCL_CHECK(with_type(call.type, [&]<class T>(TypeTag<T>) -> Result<void> {
      T value{};
      if (!scaled->in_memory())
        value = T(scaled->value<std::conditional_t<std::is_integral_v<T>, T, double>>());
      void* const at = scaled->in_memory() ? const_cast<void*>(scaled->address()) : &value;
      return rank_.call(rank_.library().RedOpCreatePreMulSum, "ncclRedOpCreatePreMulSum", &op_, at,
                        nccl_type(call.type),
                        scaled->in_memory() ? ncclScalarDevice : ncclScalarHostImmediate,
                        rank_.comm());
    }));
    made_ = true;
    return op_;
  }

 private:
  const RealRank& rank_;
  ncclRedOp_t op_ = ncclNumOps;
  bool made_ = false;
};

/// Passes on the options of a call that NCCL has, too, by the structure of NCCL 2.31. An earlier
/// library has no calls that take it.
class RealConfig {
 public:
  /// `with` is the library's function that takes a configuration; null: it has none.
  RealConfig(const Call& call, bool with) : options_{call.options.get()}, with_{with} {
    if (options_ == nullptr) return;
    all_.size = offsetof(ncclCollConfig_t, launchCompletionEvent);
    all_.version = 23102;
    all_.algSelection = selects() ? options_->algorithms.c_str() : nullptr;
    all_.forceAlgSelection = options_->must_select ? 1 : 0;
    all_.minCTAs = options_->blocks.least.value_or(NCCL_CONFIG_UNDEF_INT);
    all_.maxCTAs = options_->blocks.most.value_or(NCCL_CONFIG_UNDEF_INT);
    all_.userProfilerTag = options_->profiler_tag;
  }
  /// True if the function that takes a configuration is to be called.
  bool used() const { return options_ != nullptr && with_; }
  const ncclCollConfig_t* get() const { return &all_; }

  /// Fails with `Errc::not_supported` if the library cannot do what the call insists on, and logs
  /// what has no effect.
  Result<void> check(int version) const {
    if (options_ == nullptr || with_) return {};
    if (selects() && options_->must_select) {
      return fail(Errc::not_supported,
                  fmt::format("config.algSelection of a call that the NCCL {} of CCL_NCCL_FALLBACK "
                              "runs needs NCCL 2.31; set config.forceAlgSelection to 0, or name a "
                              "later library",
                              version));
    }
    constexpr const char* why = "the NCCL that CCL_NCCL_FALLBACK names is earlier than 2.31";
    if (selects()) log_without_effect("the call's config", "algSelection", why);
    if (options_->blocks.least) log_without_effect("the call's config", "minCTAs", why);
    if (options_->blocks.most) log_without_effect("the call's config", "maxCTAs", why);
    return {};
  }

 private:
  bool selects() const { return !options_->algorithms.empty(); }

  const CallOptions* const options_;
  const bool with_;
  ncclCollConfig_t all_ = NCCL_COLLCONFIG_INITIALIZER;
};

/// Calls `plain`, or `with`, which takes a configuration behind the same arguments.
template <class Plain, class With, class... Args>
Result<void> run_by(const RealRank& rank, const Call& call, const char* name, Plain* plain,
                    With* with, Args... args) {
  const RealConfig config{call, with != nullptr};
  CCL_CHECK(config.check(rank.library().version));
  if (config.used()) return rank.call(with, name, args..., config.get());
  return rank.call(plain, name, args...);
}

Result<void> submit(const RealRank& rank, const Call& call) {
  const RealNccl& library = rank.library();
  RealOp made{rank};
  CCL_TRY(const ncclRedOp_t op, made.of(call));
  const auto count = std::size_t(call.count);
  const auto type = nccl_type(call.type);
  switch (call.kind) {
    case Kind::all_reduce:
      return run_by(rank, call, "ncclAllReduce", library.AllReduce, library.AllReduceConfig,
                    call.send, call.recv, count, type, op, rank.comm(), call.stream);
    case Kind::reduce_scatter:
      return run_by(rank, call, "ncclReduceScatter", library.ReduceScatter,
                    library.ReduceScatterConfig, call.send, call.recv, count, type, op, rank.comm(),
                    call.stream);
    default:
      return run_by(rank, call, "ncclReduce", library.Reduce, library.ReduceConfig, call.send,
                    call.recv, count, type, op, call.root, rank.comm(), call.stream);
  }
}

/// Runs a reduction, and records it as a call of ccl's communicator.
Result<void> reduce(const RealRank& rank, const Call& call) {
  CCL_CHECK(check_may_wait());  // before the records list the call
  const OutsideCall one{*Access::state(rank.beside()), recorded(call), size_of(call.type)};
  auto done = submit(rank, call);
  one.ended(done);
  return done;
}

class WithFallback final : public Operations {
 public:
  WithFallback(std::unique_ptr<Operations> inner, std::shared_ptr<RealRank> real, bool one_order)
      : inner_{std::move(inner)}, real_{std::move(real)}, one_order_{one_order} {}
  Result<void> run(const Call& call) override {
    if (inner_->has_code(call)) return inner_->run(call);
    CCL_CHECK(check_order(call));
    return reduce(*real_, call);
  }
  Result<Choice> choice(const Call& call) override {
    if (inner_->has_code(call)) return inner_->choice(call);
    CCL_CHECK(check_order(call));
    Choice choice;
    choice.composition = composition;
    return choice;
  }
  Result<double> predict(const Call& call) const override { return inner_->predict(call); }
  Result<void> exchange(std::span<const Call> messages) override {
    return inner_->exchange(messages);
  }
  std::shared_ptr<RealRank> real() const override { return real_; }

 private:
  Result<void> check_order(const Call& call) const {
    const bool asked = call.options != nullptr && call.options->deterministic;
    if ((!one_order_ && !asked) || is_exact(call)) return {};
    return fail(Errc::not_supported,
                fmt::format("this library has no code for {} of {}, and the NCCL that "
                            "CCL_NCCL_FALLBACK names does not have the one order of additions that "
                            "{} asks for; build with CCL_NCCL_TYPES=all and CCL_NCCL_REDOPS=all",
                            call.op.name(), name(call.type),
                            one_order_ ? "CCL_DETERMINISTIC=1" : "ccl's option 1 of the call"));
  }

  const std::unique_ptr<Operations> inner_;
  const std::shared_ptr<RealRank> real_;
  const bool one_order_;
};

}  // namespace

std::unique_ptr<Operations> with_fallback(std::unique_ptr<Operations> operations,
                                          std::shared_ptr<RealRank> real, bool one_order) {
  if (real == nullptr) return operations;
  return std::make_unique<WithFallback>(std::move(operations), std::move(real), one_order);
}

}  // namespace ccl::detail::nccl
