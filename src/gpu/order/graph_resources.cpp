#include "gpu/order/graph_resources.hpp"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork_mutex.hpp"
#include "base/forks.hpp"
#include "base/made_once.hpp"
#include "gpu/gpu.hpp"

namespace ccl::detail {
namespace {

constexpr int nowhere = -1;

/// Process, as `forks_before` counts them, that has resources of destroyed graphs. Apart from the
/// list, which needs memory when it is first used.
std::atomic<int> dead_in{nowhere};

/// Resources of destroyed graphs. A forked child leaves those of its parent alone.
struct DeferredFree {
  std::vector<std::shared_ptr<void>> dead;
  int process = forks_before();
  ForkMutex mutex{[this] { renew(dead); }};
  /// The list of this process. The caller holds `mutex`.
  std::vector<std::shared_ptr<void>>& own() {
    if (std::exchange(process, forks_before()) != forks_before()) renew(dead);
    return dead;
  }
  static DeferredFree& instance() {
    static constinit MadeOnce<DeferredFree> one;
    return one.get();
  }
};

/// Resources of a graph.
struct Tied {
  std::shared_ptr<void> keep, alive;
};

void CUDA_CB graph_has_gone(void* held) {
  const std::unique_ptr<Tied> tied{static_cast<Tied*>(held)};
  DeferredFree& deferred = DeferredFree::instance();
  const std::lock_guard lock{deferred.mutex};
  deferred.own().push_back(std::move(tied->keep));
  dead_in.store(forks_before(), std::memory_order_relaxed);
}

}  // namespace

Result<void> keep_for_graph(const CudaDriver& cuda, CUgraph graph, std::shared_ptr<void> keep,
                            std::shared_ptr<void> alive) {
  auto held = std::make_unique<Tied>(Tied{std::move(keep), std::move(alive)});
  CUuserObject object = nullptr;
  CCL_CHECK(cuda_check(cuda.user_object_create(&object, held.get(), &graph_has_gone, 1,
                                               CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
                       "tie connections to a graph"));
  (void)held.release();  // owned by the object
  const CUresult tied = cuda.graph_retain_user_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
  if (tied != CUDA_SUCCESS) (void)cuda.user_object_release(object, 1);
  return cuda_check(tied, "tie connections to a graph");
}

bool graphs_have_gone() noexcept {
  return dead_in.load(std::memory_order_relaxed) == forks_before();
}

void free_graph_resources() {
  std::vector<std::shared_ptr<void>> dead;
  DeferredFree& deferred = DeferredFree::instance();
  const std::lock_guard lock{deferred.mutex};
  dead.swap(deferred.own());
  dead_in.store(nowhere, std::memory_order_relaxed);
}

}  // namespace ccl::detail
