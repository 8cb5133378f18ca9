#include "player.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "cases.hpp"
#include "orders.hpp"
#include "report.hpp"
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ccl::perf {
namespace {

/// Ends the process if an order is not complete in time. Ranks that are threads share it.
class Watchdog {
 public:
  explicit Watchdog(double limit_s) {
    struct sigaction action {};
    action.sa_handler = [](int) {
      constexpr char text[] = "ccl_perf: a rank hangs; its process ends (see --timeout)\n";
      (void)!::write(STDERR_FILENO, text, sizeof text - 1);
      ::_exit(4);
    };
    ::sigaction(SIGALRM, &action, nullptr);
    ++working();
    ::alarm(unsigned(std::ceil(limit_s)));
  }
  ~Watchdog() {
    if (--working() == 0) ::alarm(0);
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  static std::atomic<int>& working() {
    static std::atomic<int> count{0};
    return count;
  }
};

class Player final : public Stage {
 public:
  explicit Player(const Position& position)
      : position_{position},
        options_{position.options},
        side_{position.mode.nccl ? make_nccl_side(position.mode, position.nccl_library)
                                 : make_ccl_side(position.options)} {}

  Result<void> obey(const Order& order, Reply& reply) {
    switch (order.verb) {
      case Order::Verb::invite: {
        CCL_CHECK(gpu::select(position_.rank));
        CCL_TRY(reply.invitation, side_->invite());
        return {};
      }
      case Order::Verb::join:
        return join(order, reply);
      case Order::Verb::prepare:
        return prepare(order, reply);
      case Order::Verb::time:
        return time(order, reply);
      case Order::Verb::finish:
        return finish(reply);
      case Order::Verb::explain:
        return explain(reply);
      case Order::Verb::leave:
        break;
    }
    const double begin = now_s();
    CCL_CHECK(side_->leave());
    reply.seconds = now_s() - begin;
    return {};
  }

  gpu::Queue& queue() override { return *queue_; }
  Result<void> meet() override { return position_.rendezvous.meet(options_.timeout_s); }
  Result<double> clock(const std::function<Result<void>()>& work) override {
    ++gate_;
    CCL_CHECK(queue_->hold(gate_));
    CCL_CHECK(queue_->begin_clock());
    CCL_CHECK(work());
    CCL_CHECK(queue_->end_clock());
    CCL_CHECK(meet());
    if (position_.rank == 0)
      position_.rendezvous.gate().opened.store(gate_, std::memory_order_release);
    CCL_CHECK(queue_->wait());
    return queue_->clock_us();
  }

 private:
  static constexpr Index margin = 256;  // bytes after those of a call that must stay unchanged

  Result<void> join(const Order& order, Reply& reply) {
    CCL_CHECK(gpu::select(position_.rank));
    CCL_TRY(queue_, gpu::Queue::create(position_.rendezvous.gate(), options_.timeout_s));
    CCL_CHECK(meet());  // contexts take long and are not measured
    CCL_TRY(const Index before, gpu::free_memory());
    const double begin = now_s();
    CCL_CHECK(side_->join(order.invitation, position_.rank, position_.ranks, position_.rank));
    reply.seconds = now_s() - begin;
    CCL_TRY(const Index after, gpu::free_memory());
    reply.memory_bytes = before - after;
    const Index most = largest_buffer(options_, position_.ranks);
    CCL_TRY(send_, side_->allocate(most + margin));
    CCL_TRY(recv_, side_->allocate(most + margin));
    put(reply.note, side_->note());
    return {};
  }

  Result<void> prepare(const Order& order, Reply& reply) {
    shape_ = Shape::of(options_.op, order.bytes, size_of(order.type), position_.ranks,
                       position_.rank, options_.root);
    call_ = make_call(shape_, order.type, order.redop);
    const Index size = size_of(order.type);
    into_ = send_;
    call_.recv = recv_;
    touched_bytes_ = shape_.recv_count * size;
    if (const auto in_place = shape_.in_place(); options_.in_place && in_place) {
      into_ = recv_ + in_place->send * size;
      call_.recv = recv_ + in_place->recv * size;
      touched_bytes_ = in_place->all * size;
    }
    call_.send = into_;
    call_.stream = queue_->stream();

    CCL_TRY(const Index before, gpu::free_memory());
    double begin = now_s();
    CCL_CHECK(side_->prepare({order.algo, order.proto}, shape_, order.type, order.redop));
    reply.seconds = now_s() - begin;
    put(reply.label, side_->label());
    reply.plan = side_->plan();
    if (!options_.tune.empty()) {
      CCL_TRY(const detail::TuningCase where, side_->tuning_case());
      put(reply.path, where.path);
      reply.compute_capability = where.compute_capability;
      reply.hosts = where.hosts;
    }
    CCL_CHECK(fresh_data());
    CCL_CHECK(meet());
    begin = now_s();
    CCL_CHECK(run());
    CCL_CHECK(queue_->wait());
    reply.seconds += now_s() - begin;
    CCL_CHECK(side_->health());
    CCL_TRY(reply.wrong, wrong());
    CCL_TRY(const Index after, gpu::free_memory());
    reply.memory_bytes = before - after;

    CCL_CHECK(meet());
    const int warm = std::max(options_.warmup, 1);
    begin = now_s();
    for (int i = 0; i < warm; ++i) CCL_CHECK(run());
    CCL_CHECK(queue_->wait());
    reply.call_s = (now_s() - begin) / warm;
    if (options_.graph == 0) return {};

    CCL_CHECK(meet());
    CCL_CHECK(queue_->capture([&]() -> Result<void> {
      for (int i = 0; i < options_.graph; ++i) CCL_CHECK(run());
      return {};
    }));
    for (int i = 0; i < 2; ++i) {
      CCL_CHECK(meet());
      begin = now_s();
      CCL_CHECK(queue_->replay());
      CCL_CHECK(queue_->wait());
    }
    reply.call_s = (now_s() - begin) / options_.graph;
    return side_->health();
  }

  Result<void> time(const Order& order, Reply& reply) {
    const int samples = std::min(order.samples, Reply::max_samples);
    for (int i = -order.warm; i < samples; ++i) {
      double us = 0, wall_us = 0;
      if (options_.graph != 0) {
        CCL_TRY(us, clock([&] { return queue_->replay(); }));
      } else {
        CCL_TRY(us, clock_calls(order.calls, wall_us));
      }
      if (i < 0) continue;
      reply.us[i] = us / order.calls;
      reply.wall_us[i] = wall_us / order.calls;
    }
    return together();
  }
  /// Fails if a gate was opened too late, or if the side has failed.
  Result<void> together() {
    if (position_.rendezvous.gate().missed.load() != 0) {
      return fail(Errc::timed_out, "the ranks' GPUs did not start together (a rank was late)");
    }
    return side_->health();
  }

  Result<double> clock_calls(int calls, double& wall_us) {
    CCL_CHECK(meet());
    const double begin = now_s();
    CCL_CHECK(queue_->begin_clock());
    for (int i = 0; i < calls; ++i) CCL_CHECK(run());
    CCL_CHECK(queue_->end_clock());
    CCL_CHECK(queue_->wait());
    wall_us = (now_s() - begin) * 1e6;
    return queue_->clock_us();
  }

  /// Checks the case again. In place, the output of a graph of several calls is undefined. All
  /// ranks then check one plain call, even if only the root's buffers are in place.
  Result<void> finish(Reply& reply) {
    if (options_.check) {
      CCL_CHECK(fresh_data());
      CCL_CHECK(meet());
      CCL_CHECK(options_.graph != 0 && !options_.in_place ? queue_->replay() : run());
      CCL_CHECK(queue_->wait());
      CCL_TRY(reply.wrong, wrong());
      CCL_CHECK(side_->health());
      CCL_CHECK(meet());
    }
    return queue_->drop_graph();
  }

  /// Times the phases of further calls, whose data are those that the case has left.
  Result<void> explain(Reply& reply) {
    CCL_TRY(reply.phases, side_->explain(*this, shape_, call_));
    return together();
  }

  Result<void> fresh_data() {
    CCL_CHECK(queue_->poison(recv_, touched_bytes_ + margin));
    CCL_CHECK(fill_send(*queue_, shape_, call_.type, call_.redop, into_));
    return queue_->wait();
  }
  Result<Index> wrong() {
    if (!options_.check) return 0;
    CCL_TRY(const Index inside,
            gpu::count_wrong(*queue_, shape_, call_.type, call_.redop, call_.recv));
    CCL_TRY(const Index beyond, queue_->count_poison_gone(recv_ + touched_bytes_, margin));
    return inside + beyond;
  }
  Result<void> run() { return side_->run(shape_, call_, queue_->native()); }

  const Position& position_;
  const Options& options_;
  std::unique_ptr<Contender> side_;
  std::unique_ptr<gpu::Queue> queue_;
  std::byte *send_ = nullptr, *recv_ = nullptr, *into_ = nullptr;
  Shape shape_;
  Call call_;
  Index touched_bytes_ = 0;  // touched bytes of `recv_`
  unsigned gate_ = 0;
};

}  // namespace

Result<void> send_message(int socket, const void* data, std::size_t bytes) {
  for (auto at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t sent = ::send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return fail(Errc::peer_lost, std::strerror(errno));
    at += sent;
    bytes -= std::size_t(sent);
  }
  return {};
}
Result<void> receive_message(int socket, void* data, std::size_t bytes) {
  for (auto at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t got = ::recv(socket, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) return fail(Errc::peer_lost, "it has ended");
    if (got < 0) return fail(Errc::peer_lost, std::strerror(errno));
    at += got;
    bytes -= std::size_t(got);
  }
  return {};
}

void play(const Position& position) {
  Player player{position};
  for (;;) {
    Order order;
    if (!receive_message(position.socket, &order, sizeof order)) return;
    Reply reply;
    {
      const Watchdog watchdog{position.options.timeout_s * 2 + 5};
      const auto result = player.obey(order, reply);
      reply.ok = result.has_value();
      if (!result) {
        reply.code = result.error().code;
        put(reply.text, result.error().what);
        reply.os_code = result.error().os_code;
        reply.peer = result.error().peer;
      }
    }
    if (!send_message(position.socket, &reply, sizeof reply)) return;
    if (order.verb == Order::Verb::leave) return;
  }
}

}  // namespace ccl::perf
