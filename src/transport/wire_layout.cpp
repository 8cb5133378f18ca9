#include "transport/wire_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace ccl::detail {
namespace {
constexpr std::size_t line_bytes = 128, page = 4096;
constexpr std::size_t up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

/// Short slots of a wire: as many as slots, or 128 where they need little memory beside these. A
/// sender that need not wait for the receiver runs ahead of it, which counts most where two ranks
/// share a core: the receiver then finds many messages when its turn comes.
int short_slots(const WireShape& shape) {
  constexpr int many = 128;
  constexpr Index large = 32 << 10;  // bytes of a slot
  const bool has_many = shape.channels == 1 && shape.slot_bytes >= large;
  return has_many ? std::max(many, shape.slot_count) : shape.slot_count;
}
}  // namespace

Result<WireLayout> WireLayout::of(const WireShape& shape, std::byte* slots) {
  const auto bad = [&](const char* why) {
    return fail(Errc::invalid_argument,
                fmt::format("no wire can have {} channels of {} slots of {} bytes ({})",
                            shape.channels, shape.slot_count, shape.slot_bytes, why));
  };
  if (shape.channels < 1) return bad("at least one channel is needed");
  if (shape.slot_count < 1 || !std::has_single_bit(unsigned(shape.slot_count))) {
    return bad("the slot count must be a power of two");
  }
  if (shape.slot_bytes < Index(line_bytes) || shape.slot_bytes % Index(line_bytes) != 0) {
    return bad("slots must be a multiple of 128 bytes");
  }
  if (shape.slot_bytes / Index(sizeof(Packet)) > std::numeric_limits<int>::max()) {
    return bad("slots must be below 32 GiB");
  }
  WireLayout layout;
  layout.shape_ = shape;
  layout.slots_ = slots;
  layout.short_slots_ = short_slots(shape);  // whose memory may hold sizes
  layout.head_bytes_ =
      up(4 * line_bytes + std::size_t(layout.short_slots_) * sizeof(ShortSlot), page);
  std::size_t total = 0;
  if (__builtin_mul_overflow(std::size_t(shape.slot_count), std::size_t(shape.slot_bytes),
                             &layout.channel_bytes_) ||
      layout.channel_bytes_ > std::numeric_limits<std::size_t>::max() / 4) {
    return bad("more than memory can hold");
  }
  if (slots != nullptr) layout.channel_bytes_ = 0;
  layout.channel_bytes_ = up(layout.channel_bytes_, page) + layout.head_bytes_;
  if (__builtin_mul_overflow(layout.channel_bytes_, std::size_t(shape.channels), &total) ||
      total > std::size_t(std::numeric_limits<Index>::max())) {
    return bad("more than memory can hold");
  }
  return layout;
}

WireLayout::Lending WireLayout::lending(std::byte* base, int channel) const {
  std::byte* const at = base + std::size_t(channel) * channel_bytes_ + line_bytes / 2;
  return {reinterpret_cast<Word*>(at + 3 * line_bytes),
          reinterpret_cast<Word*>(at + 2 * line_bytes)};
}

std::vector<Wire> WireLayout::wires(std::byte* base, EdgeSide side, bool proxied) const {
  std::vector<Wire> wires;
  wires.reserve(std::size_t(shape_.channels));
  for (int channel = 0; channel < shape_.channels; ++channel) {
    std::byte* const at = base + std::size_t(channel) * channel_bytes_;
    const auto word = [at](std::size_t n) { return reinterpret_cast<Word*>(at + n * line_bytes); };
    Wire wire;
    wire.posted = word(0);
    wire.drained = word(1);
    if (side == EdgeSide::sender) wire.sent = word(2);
    if (side == EdgeSide::receiver) wire.received = word(3);
    static_assert(Wire::short_slots_behind * sizeof(Word) == 4 * line_bytes);
    if (proxied) wire.sizes = word(4);
    if (!proxied) wire.short_slot_count = short_slots_;
    const Index apart = Index(channel) * shape_.slot_count * shape_.slot_bytes;
    wire.slots = reinterpret_cast<Packet*>(slots_ != nullptr ? slots_ + apart : at + head_bytes_);
    wire.slot_count = shape_.slot_count;
    wire.slot_packets = int(shape_.slot_bytes / Index(sizeof(Packet)));
    wire.proxied = proxied;
    wires.push_back(wire);
  }
  return wires;
}

}  // namespace ccl::detail
