#pragma once

// Collectives by Ring for tests that make some call and examine what surrounds it. They are
// compiled once, in rings.cpp, which such a test links.
#include <ccl/comm/communicator.hpp>
#include <ccl/types/plan.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace ccl::test {

/// Protocol of a composition.
enum class By { simple, ll, ll128 };
/// Transport of a composition; `any`: `DefaultTransport`.
enum class Via { any, shm, loopback, socket, ib, plugin };

/// All-reduces of CPU ranks, with the sum.
class RingSums {
 public:
  /// Creates the composition. Collective. Not all pairs are compiled; another is an error.
  static Result<RingSums> create(const Communicator& comm, Via via = Via::any,
                                 std::optional<Plan> plan = {}, By by = By::simple);
  Result<void> operator()(const int* send, int* recv, Index count) const;
  Result<void> operator()(const float* send, float* recv, Index count) const;
  Result<void> operator()(const double* send, double* recv, Index count) const;
  /// Returns the number of the composition in the records.
  int number() const;

  class Made;

 private:
  explicit RingSums(std::shared_ptr<const Made> made) : made_{std::move(made)} {}
  std::shared_ptr<const Made> made_;
};

/// All-gathers of CPU ranks over RDMA, by Simple.
class RingGathers {
 public:
  static Result<RingGathers> create(const Communicator& comm, std::optional<Plan> plan = {});
  Result<void> operator()(const int* send, int* recv, Index count) const;
  Result<void> operator()(const float* send, float* recv, Index count) const;

  class Made;

 private:
  explicit RingGathers(std::shared_ptr<const Made> made) : made_{std::move(made)} {}
  std::shared_ptr<const Made> made_;
};

/// Reduce-scatters of CPU ranks over RDMA, by Simple, with the sum.
class RingScatters {
 public:
  static Result<RingScatters> create(const Communicator& comm, std::optional<Plan> plan = {});
  Result<void> operator()(const float* send, float* recv, Index count) const;

  class Made;

 private:
  explicit RingScatters(std::shared_ptr<const Made> made) : made_{std::move(made)} {}
  std::shared_ptr<const Made> made_;
};

/// Broadcasts of CPU ranks, by Simple over RDMA or shared memory.
class RingBroadcasts {
 public:
  static Result<RingBroadcasts> create(const Communicator& comm, Via via,
                                       std::optional<Plan> plan = {});
  Result<void> operator()(const int* send, int* recv, Index count, int root) const;
  Result<void> operator()(const unsigned char* send, unsigned char* recv, Index count,
                          int root) const;

  class Made;

 private:
  explicit RingBroadcasts(std::shared_ptr<const Made> made) : made_{std::move(made)} {}
  std::shared_ptr<const Made> made_;
};

}  // namespace ccl::test
