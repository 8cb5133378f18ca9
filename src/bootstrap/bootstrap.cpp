#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "base/exceptions.hpp"
#include "bootstrap/core.hpp"
#include "bootstrap/decline.hpp"
#include "settings/init_limit.hpp"

namespace ccl::detail {

using namespace net;

Result<double> deadline_of(const BootstrapOptions& options) {
  if (options.deadline_s > 0) return options.deadline_s;
  return init_limit_s();
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::join(std::span<const UniqueId> ids, int rank,
                                                   int ranks, const Options& options) {
  const LogRank in_log{rank};
  CCL_CHECK(check_settings());
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return fail(Errc::invalid_argument,
                fmt::format("rank {} of {} makes no sense (0 <= rank < ranks)", rank, ranks));
  }
  if (ranks > 1 && (ids.empty() || Index(ids.size()) > ranks)) {
    return fail(Errc::invalid_argument,
                fmt::format("{} ids for {} ranks (at least one id, at most one per rank)",
                            ids.size(), ranks));
  }
  CCL_TRY(const double deadline_s, deadline_of(options));
  std::vector<IdContent> roots;
  if (ranks == 1) {  // without a root
    roots.emplace_back();
    roots[0].secret = random_secret();
  } else {
    for (const UniqueId& id : ids) {
      CCL_TRY(const IdContent content, unpack(id));
      roots.push_back(content);
    }
  }
  // One secret for all ranks: that of the first id, which every rank has.
  auto core = std::make_shared<Core>(rank, ranks, roots[0].secret, deadline_s, options.status);
  core->membership().tree_ranks = options.tree_ranks;
  std::unique_ptr<Bootstrap> out{new Bootstrap(core)};
  const auto formed = without_exceptions([&] { return core->formation().form(roots); });
  if (!formed) {
    const auto listens = [&] {
      const Lock lock = Engine::get().lock();
      return core->sockets().acceptor != nullptr;
    };
    // No root knows of a rank that cannot even listen.
    if (!listens()) decline(ids, rank, ranks, formed.error());
    Error error = core->shutdown().give_up(formed.error());
    core->formation().wait_for_late_ranks();
    return fail(std::move(error));
  }
  core->formation().set_joined();
  log_info(LogPart::bootstrap, "{} of {} has joined", describe(core->membership().me), ranks);
  return out;
}

Bootstrap::Bootstrap(std::shared_ptr<Core> core) : core_(std::move(core)) {}
Bootstrap::~Bootstrap() {
  core_->shutdown().leave();
}

int Bootstrap::rank() const {
  return core_->membership().rank;
}
int Bootstrap::ranks() const {
  return core_->membership().ranks;
}
Status& Bootstrap::status() const {
  return core_->status();
}
std::array<std::byte, 16> Bootstrap::secret() const {
  return core_->membership().secret;
}
std::string Bootstrap::reached_at() const {
  const Membership& members = core_->membership();
  return members.ranks > 1 ? members.listening_at().to_string() : std::string{};
}
const RankPlace& Bootstrap::place(int rank) const {
  return core_->membership().places[size_t(rank)];
}

Result<void> Bootstrap::all_gather(void* all, Index bytes_each, std::optional<double> limit_s,
                                   const RendezvousId& purpose) {
  return core_->gather().all_gather(all, bytes_each, limit_s, purpose);
}

Result<void> Bootstrap::send(int peer, std::uint64_t tag, const void* data, Index bytes) {
  return send(peer, tag, data, bytes, 0);
}

Result<void> Bootstrap::send(int peer, std::uint64_t tag, const void* data, Index bytes,
                             double limit_s) {
  if (peer < 0 || peer >= ranks() || bytes < 0 || bytes > Index(max_message_bytes) ||
      (data == nullptr && bytes != 0) || (tag & own_tags) != 0) {
    return core_->membership().failed(
        Errc::invalid_argument,
        fmt::format(
            "send to rank {} of {} with {} bytes and tag {} makes no sense ({} MiB at most)", peer,
            ranks(), bytes, tag, max_message_bytes >> 20));
  }
  return core_->messages().send(peer, tag, data, bytes, limit_s);
}

Result<std::vector<std::byte>> Bootstrap::recv(int peer, std::uint64_t tag,
                                               std::optional<double> limit_s, const char* setting) {
  if (peer < 0 || peer >= ranks() || (tag & own_tags) != 0) {
    const auto e = core_->membership().failed(
        Errc::invalid_argument,
        fmt::format("recv from rank {} of {} with tag {} makes no sense", peer, ranks(), tag));
    return fail(e.error());
  }
  return core_->messages().recv(peer, tag, limit_s, {"recv", setting});
}

std::vector<std::pair<Bootstrap::Source, std::vector<std::byte>>> Bootstrap::recv_any(
    std::span<const Source> sources, double limit_s) {
  return core_->messages().recv_any(sources, limit_s);
}

void Bootstrap::set_message_listener(
    std::uint64_t tag, std::function<void(int peer, std::span<const std::byte> text)> listener) {
  core_->messages().set_listener(tag, std::move(listener));
}

Result<void> Bootstrap::barrier(std::optional<double> limit_s) {
  return core_->gather().barrier(limit_s);
}

void Bootstrap::set_rank_status(
    std::function<std::vector<std::byte>(std::string_view)> rank_status) {
  core_->statuses().set_source(std::move(rank_status));
}
void Bootstrap::set_status_listener(
    std::function<void(std::span<const std::byte> status)> listener) {
  core_->statuses().set_listener(std::move(listener));
}
Bootstrap::Step Bootstrap::current_step() const {
  return {core_->gather().running_call(), core_->waits().counted()};
}
std::uint64_t Bootstrap::calls_begun() const {
  return core_->gather().calls_begun();
}
std::vector<std::vector<std::byte>> Bootstrap::rank_statuses(double limit_s) {
  return core_->statuses().rank_statuses(limit_s);
}
std::function<std::vector<std::vector<std::byte>>(double)> Bootstrap::status_reader() const {
  return [core = core_](double limit_s) { return core->statuses().rank_statuses(limit_s); };
}
std::function<std::vector<std::string>()> Bootstrap::address_reader() const {
  return [core = core_] {
    const Lock lock = Engine::get().lock();
    std::vector<std::string> all;
    for (const Member& member : core->membership().members) {
      const Address at{member.listen};
      std::string text = at.family() == AF_UNIX ? "" : at.to_string();
      text.resize(std::min(text.size(), text.rfind(':')));
      std::erase_if(text, [](char c) { return c == '[' || c == ']'; });
      all.push_back(std::move(text));
    }
    return all;
  };
}
void Bootstrap::stop_shrink(const Error& error) {
  core_->shrink().stop(error);
}
void Bootstrap::abort(const Error& error) {
  core_->shutdown().abort(error);
}
bool Bootstrap::has_failed() const {
  return core_->shutdown().failure(net::Engine::get().callback_lock()).has_value();
}
std::optional<Error> Bootstrap::failure() const {
  const Lock lock = Engine::get().lock();
  return core_->shutdown().failure(lock);
}
Result<void> Bootstrap::finalize(std::optional<double> limit_s,
                                 const std::function<void()>& drain) {
  return core_->shutdown().finalize(limit_s, drain);
}
void Bootstrap::depart(const Lock& lock) noexcept {
  core_->shutdown().depart(lock);
}
bool Bootstrap::is_draining(const Lock& lock) const {
  return core_->shutdown().is_draining(lock);
}
void Bootstrap::lose_departed(const Lock& lock, int rank) noexcept {
  core_->shutdown().lose_departed(lock, rank);
}
void Bootstrap::join_staying(const Lock& lock) noexcept {
  core_->staying().join(lock);
}

}  // namespace ccl::detail
