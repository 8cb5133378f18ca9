#include "support/calls/rings.hpp"

#include <ccl/algo/ring.hpp>
#include <ccl/collective/all_gather.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/collective/broadcast.hpp>
#include <ccl/collective/reduce_scatter.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/ib.hpp>
#include <ccl/transport/loopback.hpp>
#include <ccl/transport/plugin.hpp>
#include <ccl/transport/shm.hpp>
#include <ccl/transport/socket.hpp>

#include <utility>

namespace ccl::test {

class RingSums::Made {
 public:
  virtual ~Made() = default;
  virtual Result<void> sum(const int* send, int* recv, Index count) const = 0;
  virtual Result<void> sum(const float* send, float* recv, Index count) const = 0;
  virtual Result<void> sum(const double* send, double* recv, Index count) const = 0;
  virtual int number() const = 0;
};

namespace {
template <class Proto, class Transport>
class Sums final : public RingSums::Made {
 public:
  using Call = Collective<AllReduce, Ring, Proto, Transport>;
  static Result<std::shared_ptr<const RingSums::Made>> make(const Communicator& comm,
                                                            std::optional<Plan> plan) {
    CCL_TRY(auto call, Call::create(comm, plan));
    return std::make_shared<const Sums>(std::move(call));
  }
  explicit Sums(Call call) : call_{std::move(call)} {}
  Result<void> sum(const int* send, int* recv, Index count) const override {
    return call_(send, recv, count);
  }
  Result<void> sum(const float* send, float* recv, Index count) const override {
    return call_(send, recv, count);
  }
  Result<void> sum(const double* send, double* recv, Index count) const override {
    return call_(send, recv, count);
  }
  int number() const override { return call_.number(); }

 private:
  Call call_;
};

Result<std::shared_ptr<const RingSums::Made>> make_sums(const Communicator& comm, Via via,
                                                        std::optional<Plan> plan, By by) {
  if (by == By::ll128 && via == Via::ib) return Sums<LL128, IbTransport>::make(comm, plan);
  if (by == By::ll && via == Via::any) return Sums<LL, DefaultTransport>::make(comm, plan);
  if (by == By::ll && via == Via::shm) return Sums<LL, ShmTransport>::make(comm, plan);
  if (by != By::simple) return fail(Errc::internal, "rings.cpp lacks this composition");
  switch (via) {
    case Via::any:
      return Sums<Simple, DefaultTransport>::make(comm, plan);
    case Via::shm:
      return Sums<Simple, ShmTransport>::make(comm, plan);
    case Via::loopback:
      return Sums<Simple, LoopbackTransport>::make(comm, plan);
    case Via::socket:
      return Sums<Simple, SocketTransport>::make(comm, plan);
    case Via::ib:
      return Sums<Simple, IbTransport>::make(comm, plan);
    case Via::plugin:
      return Sums<Simple, PluginTransport>::make(comm, plan);
  }
  return fail(Errc::internal, "no such transport");
}
}  // namespace

Result<RingSums> RingSums::create(const Communicator& comm, Via via, std::optional<Plan> plan,
                                  By by) {
  CCL_TRY(auto made, make_sums(comm, via, plan, by));
  return RingSums{std::move(made)};
}
Result<void> RingSums::operator()(const int* send, int* recv, Index count) const {
  return made_->sum(send, recv, count);
}
Result<void> RingSums::operator()(const float* send, float* recv, Index count) const {
  return made_->sum(send, recv, count);
}
Result<void> RingSums::operator()(const double* send, double* recv, Index count) const {
  return made_->sum(send, recv, count);
}
int RingSums::number() const {
  return made_->number();
}

class RingGathers::Made : public Collective<AllGather, Ring, Simple, IbTransport> {};

Result<RingGathers> RingGathers::create(const Communicator& comm, std::optional<Plan> plan) {
  CCL_TRY(auto call, (Collective<AllGather, Ring, Simple, IbTransport>::create(comm, plan)));
  return RingGathers{std::make_shared<const Made>(std::move(call))};
}
Result<void> RingGathers::operator()(const int* send, int* recv, Index count) const {
  return (*made_)(send, recv, count);
}

Result<void> RingGathers::operator()(const float* send, float* recv, Index count) const {
  return (*made_)(send, recv, count);
}

class RingScatters::Made : public Collective<ReduceScatter, Ring, Simple, IbTransport> {};

Result<RingScatters> RingScatters::create(const Communicator& comm, std::optional<Plan> plan) {
  CCL_TRY(auto call, (Collective<ReduceScatter, Ring, Simple, IbTransport>::create(comm, plan)));
  return RingScatters{std::make_shared<const Made>(std::move(call))};
}
Result<void> RingScatters::operator()(const float* send, float* recv, Index count) const {
  return (*made_)(send, recv, count);
}

class RingBroadcasts::Made {
 public:
  virtual ~Made() = default;
  virtual Result<void> run(const int* send, int* recv, Index count, int root) const = 0;
  virtual Result<void> run(const unsigned char* send, unsigned char* recv, Index count,
                           int root) const = 0;
};

namespace {
template <class Transport>
class Broadcasts final : public RingBroadcasts::Made {
 public:
  using Call = Collective<Broadcast, Ring, Simple, Transport>;
  static Result<std::shared_ptr<const RingBroadcasts::Made>> make(const Communicator& comm,
                                                                  std::optional<Plan> plan) {
    CCL_TRY(auto call, Call::create(comm, plan));
    return std::make_shared<const Broadcasts>(std::move(call));
  }
  explicit Broadcasts(Call call) : call_{std::move(call)} {}
  Result<void> run(const int* send, int* recv, Index count, int root) const override {
    return call_(send, recv, count, root);
  }
  Result<void> run(const unsigned char* send, unsigned char* recv, Index count,
                   int root) const override {
    return call_(send, recv, count, root);
  }

 private:
  Call call_;
};
}  // namespace

Result<RingBroadcasts> RingBroadcasts::create(const Communicator& comm, Via via,
                                              std::optional<Plan> plan) {
  if (via != Via::ib && via != Via::shm) {
    return fail(Errc::internal, "rings.cpp lacks this composition");
  }
  CCL_TRY(auto made, via == Via::ib ? Broadcasts<IbTransport>::make(comm, plan)
                                    : Broadcasts<ShmTransport>::make(comm, plan));
  return RingBroadcasts{std::move(made)};
}
Result<void> RingBroadcasts::operator()(const int* send, int* recv, Index count, int root) const {
  return made_->run(send, recv, count, root);
}
Result<void> RingBroadcasts::operator()(const unsigned char* send, unsigned char* recv, Index count,
                                        int root) const {
  return made_->run(send, recv, count, root);
}

}  // namespace ccl::test
