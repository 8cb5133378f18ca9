#include "connect/host_scratch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/fork_mutex.hpp"
#include "base/io/fd.hpp"
#include "base/io/mapping.hpp"
#include "base/made_once.hpp"
#include "base/numa.hpp"
#include "comm/edges/memory_exchange.hpp"
#include "comm/rank_results.hpp"

namespace ccl::detail {
namespace {

/// Memory that ranks of this process are sharing.
struct LocalScratch {
  using Key = std::tuple<std::array<std::byte, 16>, int, int>;  // secret, number, rank
  std::map<Key, std::weak_ptr<Mapping>> parts;
  ForkMutex mutex{[this] { renew(parts); }};
  static LocalScratch& instance() {
    static constinit MadeOnce<LocalScratch> one;
    return one.get();
  }
};

/// Entry of this rank's memory, for as long as ranks of the process may look for it.
class Shown {
 public:
  Shown(LocalScratch::Key key, const std::shared_ptr<Mapping>& mine) : key_{std::move(key)} {
    LocalScratch& local = LocalScratch::instance();
    const std::lock_guard lock{local.mutex};
    local.parts[key_] = mine;
  }
  ~Shown() {
    LocalScratch& local = LocalScratch::instance();
    const std::lock_guard lock{local.mutex};
    local.parts.erase(key_);
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

 private:
  const LocalScratch::Key key_;
};

}  // namespace

struct HostScratch::Maker {
  CommState& state;
  int number;
  std::string_view name;
  std::size_t bytes;
  std::vector<std::shared_ptr<Mapping>> parts =
      std::vector<std::shared_ptr<Mapping>>(std::size_t(state.identity.ranks()));

  int me() const { return state.identity.rank(); }
  bool elsewhere(int p) const {
    const auto& peers = state.identity.peers();
    return peers[std::size_t(p)].pid_hash != peers[std::size_t(me())].pid_hash;
  }
  LocalScratch::Key key_of(int rank) const {
    return {state.rendezvous.bootstrap()->secret(), number, rank};
  }

  /// Makes this rank's memory. `file` is left empty if no other process needs it.
  Result<void> make(Fd& file) {
    bool shares = false;
    for (int p = 0; p < state.identity.ranks(); ++p) shares |= elsewhere(p);
    if (shares) {
      CCL_TRY(file, shareable_memory("ccl-scratch", bytes));
    }
    auto made = shares ? Mapping::of(file, bytes) : Mapping::anonymous(bytes);
    if (!made) {
      Error error = std::move(made).error();
      error.what = fmt::format("cannot map {} bytes for {} ({}); give it a Plan with smaller slots",
                               bytes, name, std::strerror(error.os_code));
      return fail(std::move(error));
    }
    if (state.device.gpu) prefer_node(made->base(), bytes, state.device.numa);  // not that of NICs
    parts[std::size_t(me())] = std::make_shared<Mapping>(*std::move(made));
    return {};
  }

  /// Finds the memory of the ranks of this process, which all have entered theirs.
  Result<void> find_local() {
    LocalScratch& local = LocalScratch::instance();
    const std::lock_guard lock{local.mutex};
    for (int p = 0; p < state.identity.ranks(); ++p) {
      if (elsewhere(p)) continue;
      const auto found = local.parts.find(key_of(p));
      if (found != local.parts.end()) parts[std::size_t(p)] = found->second.lock();
      if (parts[std::size_t(p)] && parts[std::size_t(p)]->bytes() == bytes) continue;
      Error error{Errc::not_supported,
                  fmt::format("rank {} is in the process of rank {} and shows it no memory for {} "
                              "(another library of the process has a copy of ccl of its own?); let "
                              "all link one shared library of ccl",
                              p, me(), name)};
      error.peer = p;
      return fail(std::move(error));
    }
    return {};
  }

  Result<void> run(const Result<void>& so_far) {
    Fd file;
    const auto prepare = [&]() -> Result<void> {
      CCL_CHECK(so_far);
      return make(file);
    };
    const Result<void> prepared = prepare();
    const Shown shown{key_of(me()), parts[std::size_t(me())]};
    const auto take = [this](int p, const Fd& fd) -> Result<void> {
      CCL_TRY(Mapping mapping, Mapping::of(fd, bytes));
      parts[std::size_t(p)] = std::make_shared<Mapping>(std::move(mapping));
      return {};
    };
    const auto with = [this](int p) { return elsewhere(p); };
    CCL_CHECK(share_memory(state, {number, name, "nvls", bytes, with, take}, file, prepared));
    return all_agree(state, name, find_local());  // entries stay until all have looked
  }
};

Result<HostScratch> HostScratch::map(CommState& state, int number, std::string_view name,
                                     std::size_t bytes, const Result<void>& so_far) {
  Maker maker{state, number, name, bytes};
  CCL_CHECK(maker.run(so_far));
  HostScratch scratch;
  for (const auto& part : maker.parts) scratch.at_.push_back(part->base());
  scratch.owner_ = std::make_shared<decltype(maker.parts)>(std::move(maker.parts));
  return scratch;
}

}  // namespace ccl::detail
