#include <ccl/comm/window.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <cstring>

#include "compositions.hpp"
#include "explain_gpu.hpp"
#include "side.hpp"

namespace ccl::perf {
namespace {

class CclSide final : public Contender {
 public:
  explicit CclSide(const Options& options) : options_{options} {}

  Result<Invitation> invite() override {
    CCL_TRY(const UniqueId id, create_unique_id());
    static_assert(sizeof id == sizeof(Invitation));
    Invitation invitation;
    std::memcpy(invitation.data(), &id, sizeof id);
    return invitation;
  }
  Result<void> join(const Invitation& invitation, int rank, int ranks, int device) override {
    UniqueId id;
    std::memcpy(&id, invitation.data(), sizeof id);
    Config config;
    // The deadline is before the benchmark's own, so that ccl reports the late rank.
    if (!detail::setting_given("TIMEOUT")) config.timeout_s = options_.timeout_s / 2;
    config.device = gpu::communicator_device(device);
    config.name = "ccl_perf";
    // The default budget is for the few compositions of a program, not for all of them, and not for
    // their traced forms.
    if ((options_.algo == "all" || options_.proto == "all" || options_.explain) &&
        !detail::setting_given("MEMORY_BUDGET")) {
      config.memory_budget_bytes = Index{4} << 30;
    }
    CCL_TRY(auto comm, Communicator::create(id, rank, ranks, config));
    comm_ = std::move(comm);
    compositions_ = std::make_unique<Compositions>(*comm_, options_);
    explainer_ = std::make_unique<GpuExplainer>(*comm_, options_, *compositions_);
    return {};
  }
  Result<std::byte*> allocate(Index bytes) override {
    if (!options_.windows) return gpu::allocate(bytes);
    CCL_TRY(const auto memory, SharedMemory::allocate(*comm_, bytes));
    CCL_TRY(auto window, Window::create(*comm_, memory));
    windows_.push_back(std::move(window));
    return memory.data();
  }
  Result<void> prepare(const Choice& asked, const Shape& shape, DataType type,
                       RedOp redop) override {
    CCL_TRY(const Choice choice, compositions_->resolve(asked, shape.bytes, type, redop));
    CCL_TRY(runner_, compositions_->get(choice));
    choice_ = choice;
    return {};
  }
  Result<void> run(const Shape&, const Call& call, void*) override { return runner_->run(call); }
  Result<void> health() override { return comm_->status(); }
  Result<RankPhases> explain(Stage& stage, const Shape& shape, const Call& call) override {
    return explainer_->explain(stage, choice_, call, shape.bytes);
  }
  Result<void> leave() override {
    explainer_.reset();
    compositions_.reset();
    for (const Window& window : windows_) CCL_CHECK(window.close());
    return comm_->finalize();
  }
  Result<detail::TuningCase> tuning_case() override { return compositions_->tuning_case(); }
  std::string label() const override { return runner_ == nullptr ? "" : choice_.name(); }
  Plan plan() const override { return runner_ == nullptr ? Plan{} : runner_->plan(); }

 private:
  const Options& options_;
  std::optional<Communicator> comm_;
  std::unique_ptr<Compositions> compositions_;
  std::vector<Window> windows_;  // they keep their memory alive
  std::unique_ptr<GpuExplainer> explainer_;
  const Runner* runner_ = nullptr;
  Choice choice_;
};

}  // namespace

std::unique_ptr<Contender> make_ccl_side(const Options& options) {
  return std::make_unique<CclSide>(options);
}

}  // namespace ccl::perf
