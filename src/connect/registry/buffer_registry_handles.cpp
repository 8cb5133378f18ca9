#include <ccl/comm/log.hpp>

#include <algorithm>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "connect/registry/buffer_registry.hpp"
#include "gpu/shared_handle.hpp"

// Memory of cuMem handles, which ranks of different processes send each other.
namespace ccl::detail {

void BufferRegistry::begin_import(int peer, int slot, const RegistryBoard::Memory& memory) {
  constexpr Word max_bytes = RemoteBuffer::offset_mask;
  const bool fits = memory.handles > 0 && memory.handles <= BufferRange::max_mappings &&
                    memory.bytes > 0 && memory.bytes <= max_bytes;
  const auto begun =
      fits
          ? imports_->begin({peer, slot, memory.id, std::size_t(memory.bytes), int(memory.handles)})
          : fail(Errc::not_supported, "its handles cannot be exported");
  if (begun) return;
  log_info(LogPart::init, "rank {}'s memory is not mapped ({})", peer, begun.error().what);
  enter(peer, slot, memory.id, 0);
}

void BufferRegistry::exchange_handles() {
  if (!sockets_) return;
  const std::lock_guard lock{gpu_->rest().mutex};
  if (gpu_->rest().rests) return;
  const Gpu::Current current{*gpu_};
  constexpr int max_messages = 64;  // of a round; each reply takes some milliseconds
  for (int n = 0; n < max_messages; ++n) {
    const auto message = sockets_->receive();
    if (!message) break;
    if (const auto* const request = std::get_if<HandleSockets::Request>(&*message)) {
      send_handles(*request);
      continue;
    }
    const auto& reply = std::get<HandleSockets::Reply>(*message);
    const auto ended = imports_->take(reply);
    if (!ended) continue;
    const auto& [memory, range] = *ended;
    const bool fits = range && range->base() >> RemoteBuffer::base_bits == 0;
    if (fits) {
      log_info(LogPart::init, "mapped {} bytes of rank {}, of {} handles", memory.bytes,
               memory.owner, memory.handles);
      mapped_of(memory.owner, memory.slot).holds = range;
    }
    enter(memory.owner, memory.slot, memory.id, fits ? range->base() : 0);
  }
  imports_->ask([this](int owner) { board(owner).ring(); });
}

void BufferRegistry::send_handles(const HandleSockets::Request& request) {
  std::vector<HandleMapping> asked;
  {
    const std::lock_guard lock{mutex_};
    const auto open =
        std::ranges::find_if(open_, [&](const auto& one) { return one.second.id == request.id; });
    if (open == open_.end()) return;  // the peer learns from the board that it is closed
    const auto& all = open->second.range.mappings;
    for (auto n = std::size_t(request.first);
         n < all.size() && asked.size() < HandleSockets::max_handles; ++n) {
      asked.push_back(all[n]);
    }
  }
  std::vector<SharedHandle> handles;
  for (const HandleMapping& mapping : asked) {
    auto exported = export_handle(gpu_->driver(), mapping);
    if (!exported) {
      log_info(LogPart::init, "rank {} does not get {} bytes of memory ({})", request.reader,
               mapping.range.bytes, exported.error().what);
      handles.clear();
      break;
    }
    handles.push_back(*std::move(exported));
  }
  // A lost answer is asked for again.
  if (sockets_->reply(request, handles)) {
    board(request.reader).ring();
  }
}

}  // namespace ccl::detail
