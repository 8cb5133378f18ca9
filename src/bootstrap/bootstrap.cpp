#include <fmt/format.h>

#include "bootstrap/core.hpp"

namespace ccl::detail {

using namespace net;

Bootstrap::Bootstrap(std::shared_ptr<Core> core) : core_(std::move(core)) {}
Bootstrap::~Bootstrap() {
  core_->leave();
}

int Bootstrap::rank() const {
  return core_->rank();
}
int Bootstrap::ranks() const {
  return core_->ranks();
}
Status& Bootstrap::status() const {
  return core_->status();
}
std::array<std::byte, 16> Bootstrap::secret() const {
  return core_->secret();
}
const RankPlace& Bootstrap::place(int rank) const {
  return core_->place(rank);
}

Result<void> Bootstrap::all_gather(void* all, Index bytes_each, std::optional<double> limit_s,
                                   const RendezvousId& purpose) {
  return core_->all_gather(all, bytes_each, limit_s, purpose);
}

Result<void> Bootstrap::send(int peer, std::uint64_t tag, const void* data, Index bytes) {
  if (peer < 0 || peer >= ranks() || bytes < 0 || (data == nullptr && bytes != 0) ||
      (tag & own_tags) != 0) {
    return core_->failed(
        Errc::invalid_argument,
        fmt::format("send to rank {} of {} with {} bytes and tag {} makes no sense", peer, ranks(),
                    bytes, tag));
  }
  return core_->send(peer, tag, data, bytes);
}

Result<std::vector<std::byte>> Bootstrap::recv(int peer, std::uint64_t tag,
                                               std::optional<double> limit_s) {
  if (peer < 0 || peer >= ranks() || (tag & own_tags) != 0) {
    const auto e = core_->failed(
        Errc::invalid_argument,
        fmt::format("recv from rank {} of {} with tag {} makes no sense", peer, ranks(), tag));
    return fail(e.error());
  }
  return core_->recv(peer, tag, limit_s);
}

std::vector<std::pair<Bootstrap::Source, std::vector<std::byte>>> Bootstrap::recv_any(
    std::span<const Source> sources, double limit_s) {
  return core_->recv_any(sources, limit_s);
}

Result<void> Bootstrap::barrier(std::optional<double> limit_s) {
  return core_->barrier(limit_s);
}

void Bootstrap::set_rank_status(std::function<std::vector<std::byte>(std::string_view)> rank_status) {
  core_->set_rank_status(std::move(rank_status));
}
std::vector<std::vector<std::byte>> Bootstrap::rank_statuses(double limit_s) {
  return core_->rank_statuses(limit_s);
}
void Bootstrap::stop_shrink(const Error& error) {
  core_->stop_shrink(error);
}
void Bootstrap::abort(const Error& error) {
  core_->abort(error);
}
Result<void> Bootstrap::finalize(std::optional<double> limit_s) {
  return core_->finalize(limit_s);
}

}  // namespace ccl::detail
