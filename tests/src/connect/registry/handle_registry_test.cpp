// Memory of cuMem handles that ranks of other processes map: `BufferRegistry` with what it has of
// `HandleSockets` and `HandleImports`.
#include <ccl/comm/communicator.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "comm/edges/memory_rest.hpp"
#include "connect/registry/buffer_registry.hpp"
#include "support/catch.hpp"
#include "support/driver.hpp"
#include "support/handle_memory.hpp"
#include "support/id_between.hpp"
#include "support/region_attributes.hpp"
#include <sys/socket.h>

using namespace ccl;
using namespace ccl::test;
using detail::BufferRegistry;
using detail::RemoteBuffer;

namespace {
constexpr std::size_t piece = 256 << 10;
/// Pieces of the first buffer: their handles need two messages and a third of one.
constexpr std::size_t pieces = 33;

/// Rank of a process, with its registry. Words travel over `fd`.
struct RankEnd {
  int fd;
  Result<Communicator> comm = fail(Errc::internal, "not created");
  std::shared_ptr<BufferRegistry> registry{};

  std::string open(int rank) {
    Config config;
    config.device = rank;
    comm = Communicator::create(id_between(rank, fd), rank, 2, config);
    if (!comm) return comm.error().message();
    auto made = BufferRegistry::open(*detail::Access::state(*comm), 0, "buffers");
    if (!made) return made.error().message();
    registry = *std::move(made);
    return "";
  }
  std::string change_rest(Result<void> (*step)(detail::CommState&, const char*)) const {
    const auto done = step(*detail::Access::state(*comm), "the test");
    return done ? "" : done.error().message();
  }
  void send_word(Word word) const { (void)::send(fd, &word, sizeof word, MSG_NOSIGNAL); }
  Word receive_word() const {
    Word word = 0;
    (void)::recv(fd, &word, sizeof word, MSG_WAITALL);
    return word;
  }
  /// Entry of this rank for a buffer of rank 0.
  Word entry(Word where) const {
    const Word* const at = registry->table() + RemoteBuffer::slot(where);
    return std::atomic_ref<Word>{*const_cast<Word*>(at)}.load();
  }
  /// Waits for the entry of a buffer of rank 0. Returns the buffer's address here, or null.
  const char* mapped(Word where) const {
    if (!wait_until([&] { return RemoteBuffer::leads(entry(where), where); })) return nullptr;
    return RemoteBuffer::at(entry(where), where);
  }
};

Word id_of(Word where) {
  return where >> RemoteBuffer::id_shift;
}
int mark_at(const char* at) {
  int mark = 0;
  std::memcpy(&mark, at, sizeof mark);
  return mark;
}

/// Free memory of a GPU of 1,000 MiB.
std::atomic<std::size_t> free_mib{500};

void install() {
  auto cuda = install_gpus(2);
  cuda.mem_get_info = [](std::size_t* free, std::size_t* all) {
    *free = free_mib << 20;
    *all = std::size_t{1000} << 20;
    return CUDA_SUCCESS;
  };
  detail::use_cuda_driver(cuda, 2);
}

/// Rank 0, which has the memory.
std::string own(int fd) {
  install();
  RankEnd end{fd};
  if (auto wrong = end.open(0); !wrong.empty()) return wrong;
  HandleMemory memory{0, pieces + 8, piece};
  for (std::size_t n = 0; n < pieces; ++n) memory.map(n, int(n));
  const Word where = end.registry->where(memory.piece(0), Index{pieces * piece});
  if (where == 0) return "the memory is not opened";
  end.send_word(where);
  if (end.receive_word() != 1) return "the peer does not see the memory";
  const Word part = end.registry->where(memory.piece(7) + 256, Index{10 * piece});
  if (id_of(part) != id_of(where)) return "a part of the buffer is opened for itself";

  // The segment grows. A buffer in its new part is another memory, the old one stays.
  for (std::size_t n = pieces; n < pieces + 8; ++n) memory.map(n, int(n));
  const Word more = end.registry->where(memory.piece(pieces - 2), Index{10 * piece});
  if (more == 0 || id_of(more) == id_of(where)) return "the buffer of a grown segment";
  if (end.registry->where(memory.piece(0), Index{pieces * piece}) != where) {
    return "the old buffer has another id";
  }
  end.send_word(more);
  if (end.receive_word() != 1) return "the peer does not see the new part";

  // The GPU gets short of memory.
  free_mib = 31;
  if (end.receive_word() != 1) return "the peer keeps the memory of a full GPU";
  free_mib = 41;  // not enough yet
  std::this_thread::sleep_for(std::chrono::milliseconds{200});
  end.send_word(1);
  if (end.receive_word() != 1) return "the peer maps the memory too early";
  free_mib = 42;  // and for long enough after two seconds
  if (end.receive_word() != 1) return "the peer does not map the memory again";

  // Memory rests. The program may free its own meanwhile.
  if (const auto rests = end.change_rest(&detail::rest_memory); !rests.empty()) return rests;
  if (end.receive_word() != 1) return "the peer keeps the memory of one that rests";
  if (const auto wakes = end.change_rest(&detail::wake_memory); !wakes.empty()) return wakes;
  if (end.receive_word() != 1) return "the peer does not map the memory after the rest";

  // A handle is taken away, and another one comes to its place.
  memory.unmap(5);
  if (end.registry->where(memory.piece(0), Index{pieces * piece}) != 0) return "a gap is opened";
  if (end.receive_word() != 1) return "the peer keeps freed memory";
  memory.map(5, 555);
  const Word again = end.registry->where(memory.piece(0), Index{pieces * piece});
  if (again == 0 || id_of(again) == id_of(where)) return "the same id for other memory";
  end.send_word(again);
  if (end.receive_word() != 1) return "the peer does not see the memory of the new handle";

  // The driver exports no more handles. Nothing else does.
  fake::gpus().exports = false;
  HandleMemory secret{0, 16, piece};
  for (std::size_t n = 0; n < 16; ++n) secret.map(n, 0);
  end.send_word(end.registry->where(secret.piece(0), Index{16 * piece}));
  if (end.receive_word() != 1) return "the peer maps what is not exported";
  fake::gpus().exports = true;
  end.registry.reset();
  const auto ended = end.comm->finalize();
  return ended ? "" : ended.error().message();
}

/// Rank 1, which maps it.
std::string read(int fd) {
  install();
  RankEnd end{fd};
  if (auto wrong = end.open(1); !wrong.empty()) return wrong;
  const Word where = end.receive_word();
  const char* const first = end.mapped(where);
  if (first == nullptr) return "the first buffer is not mapped";
  for (std::size_t n = 0; n < pieces; ++n) {
    if (mark_at(first + n * piece) != int(n)) return "piece " + std::to_string(n);
  }
  end.send_word(1);
  const Word more_where = end.receive_word();
  const char* const more = end.mapped(more_where);
  if (more == nullptr) return "the grown buffer is not mapped";
  if (mark_at(more) != pieces - 2 || mark_at(more + 9 * piece) != pieces + 7) return "other pieces";
  if (!RemoteBuffer::leads(end.entry(where), where)) return "the first buffer is gone";
  end.send_word(1);
  if (!wait_until([&] { return end.entry(where) == 0 && end.entry(more_where) == 0; })) {
    return "memory of a full GPU stays mapped";
  }
  end.send_word(1);
  (void)end.receive_word();
  if (end.entry(where) != 0) return "it is mapped again too early";
  end.send_word(1);
  const char* const back = end.mapped(where);
  if (back == nullptr || mark_at(back + 4 * piece) != 4) return "it is not mapped again";
  if (end.mapped(more_where) == nullptr) return "the second is not mapped again";
  end.send_word(1);
  const auto mapped_at = [](const char* at) {
    const std::lock_guard lock{fake::gpus().mutex};
    return fake::gpus().region(at) != nullptr;
  };
  const char* const before_rest = end.mapped(where);
  if (before_rest == nullptr || !mapped_at(before_rest)) return "it is not mapped before the rest";
  if (const auto rests = end.change_rest(&detail::rest_memory); !rests.empty()) return rests;
  if (!wait_until([&] { return !mapped_at(before_rest); })) return "it stays mapped at rest";
  end.send_word(1);
  if (const auto wakes = end.change_rest(&detail::wake_memory); !wakes.empty()) return wakes;
  if (end.mapped(where) == nullptr || end.mapped(more_where) == nullptr) {
    return "it is not mapped after the rest";
  }
  end.send_word(1);
  if (!wait_until([&] { return end.entry(where) == 0; })) return "freed memory stays mapped";
  end.send_word(1);
  const char* const again = end.mapped(end.receive_word());
  if (again == nullptr || mark_at(again + 5 * piece) != 555) return "not the new handle";
  end.send_word(1);
  const Word secret = end.receive_word();
  std::this_thread::sleep_for(std::chrono::milliseconds{300});
  if (secret == 0 || end.entry(secret) != 0) return "what is not exported has an entry";
  end.send_word(1);
  end.registry.reset();
  const auto ended = end.comm->finalize();
  return ended ? "" : ended.error().message();
}
}  // namespace

TEST_CASE("processes map adjacent cuMem handles of each other, as they come and go") {
  CHECK(alone_with_child([](int fd) { return read(fd); }, [](int fd, pid_t) { return own(fd); }) ==
        "");
}
