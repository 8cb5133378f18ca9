#include "transport/wire_layout.hpp"

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/os_error.hpp"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>

namespace ccl::detail {
namespace {
constexpr std::size_t line_bytes = 128, page = 4096;
constexpr std::size_t up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

Result<std::byte*> map(std::size_t bytes, int flags, int fd) {
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (base != MAP_FAILED) return static_cast<std::byte*>(base);
  const int os_code = errno;
  return fail(
      os_error(Errc::out_of_memory,
               fmt::format("cannot map {} bytes of slots ({}); fewer or smaller slots need less",
                           bytes, std::strerror(os_code)),
               os_code));
}
}  // namespace

Mapping::~Mapping() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}
Result<Mapping> Mapping::anonymous(std::size_t bytes) {
  CCL_TRY(std::byte* const base, map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1));
  return Mapping{base, bytes};
}
Result<Mapping> Mapping::of(const Fd& fd, std::size_t bytes) {
  CCL_TRY(std::byte* const base, map(bytes, MAP_SHARED, fd.get()));
  return Mapping{base, bytes};
}

Result<Fd> shareable_memory(const char* name, std::size_t bytes) {
  rlimit longest{};
  // Whoever makes a longer file is killed (SIGXFSZ), which is more than the call deserves.
  if (::getrlimit(RLIMIT_FSIZE, &longest) == 0 && bytes > longest.rlim_cur) {
    return fail(os_error(Errc::out_of_memory,
                         fmt::format("cannot make {} bytes of shared memory (they count as a file, "
                                     "which may have {} here); raise ulimit -f",
                                     bytes, longest.rlim_cur),
                         EFBIG));
  }
  Fd memory{::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  const Errc code = memory ? Errc::out_of_memory : Errc::system;
  if (!memory || ::ftruncate(memory.get(), off_t(bytes)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int os_code = errno;
    // Descriptors that ran out have a hint of their own.
    const char* const help = memory ? "; fewer or smaller slots need less"
                             : os_code == ENOSYS || os_code == EPERM || os_code == EACCES
                                 ? "; let the container call memfd_create, or set CCL_SHM_DISABLE=1"
                                 : "";
    return fail(os_error(code,
                         fmt::format("cannot make {} bytes of shared memory ({}){}", bytes,
                                     std::strerror(os_code), help),
                         os_code));
  }
  return memory;
}

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
  layout.head_bytes_ = up(4 * line_bytes + std::size_t(shape.slot_count) * sizeof(Word), page);
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
    if (proxied) wire.sizes = word(4);
    const Index apart = Index(channel) * shape_.slot_count * shape_.slot_bytes;
    wire.slots = reinterpret_cast<Packet*>(slots_ != nullptr ? slots_ + apart : at + head_bytes_);
    wire.slot_count = shape_.slot_count;
    wire.slot_packets = int(shape_.slot_bytes / Index(sizeof(Packet)));
    wire.proxied = proxied;
    wires.push_back(wire);
  }
  return wires;
}

Error edge_error(const Edge& edge, const char* transport, Errc code, std::string what,
                 int os_code) {
  Error error = os_error(code, std::move(what), os_code);
  error.rank = edge.self.rank;
  error.peer = edge.peer.rank;
  error.host = edge.self.host;
  error.transport = transport;
  return error;
}

std::string differing_shapes(const Edge& edge, const WireShape& theirs) {
  const auto said = [](const WireShape& shape) {
    return fmt::format("{} channels of {} slots of {} bytes", shape.channels, shape.slot_count,
                       shape.slot_bytes);
  };
  return fmt::format(
      "rank {} made a wire of {} where rank {} made {}; give the same plan and settings on all "
      "ranks",
      edge.peer.rank, said(theirs), edge.self.rank, said(edge.shape));
}

Result<void> fill_random(void* to, std::size_t bytes) {
  if (::getrandom(to, bytes, 0) == ssize_t(bytes)) return {};
  return fail(Errc::system, fmt::format("no random bytes ({})", std::strerror(errno)));
}

}  // namespace ccl::detail
