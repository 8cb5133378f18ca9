#pragma once

#include <ccl/detail/exchange/mailbox.hpp>

#include <cuda.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>

namespace ccl::detail {

/// Board on which a rank posts the memories that its peers may map. It lies in memory that all
/// ranks share. The owner writes entries; peers ring its doorbell and record what they have mapped.
struct RegistryBoard {
  /// Access of peers to a memory.
  enum class Kind : Word {
    legacy,   // other processes open it by `ipc`; the owner's process has its address
    handles,  // other processes get its cuMem handles; the owner's process has its address
    window    // it lies in a window that the peers have mapped
  };
  /// Memory of the owner.
  struct Memory {
    Word id = 0;    // counted from 1; fits the bits above `RemoteBuffer::id_shift`
    Word base = 0;  // address in the owner's process
    Word bytes = 0;
    Kind kind = Kind::legacy;
    Word window = 0;   // number of the window
    Word handles = 0;  // number of handles, if other processes can import them
    CUipcMemHandle ipc{};
  };

  /// Posts a memory in the slot of its id, which must be closed. Called by the owner.
  void open(const Memory& memory) {
    Entry& entry = entries_[std::size_t(memory.id) % RemoteBuffer::slots];
    Words words;
    std::memcpy(words.data(), &memory, sizeof memory);
    // The order is: close of the slot, these words, id. A concurrent reader sees that the id
    // changes.
    std::atomic_thread_fence(std::memory_order_release);
    for (std::size_t w = 0; w < words.size(); ++w) {
      entry.memory[w].store(words[w], std::memory_order_relaxed);
    }
    entry.id.store(memory.id, std::memory_order_release);
  }
  /// Closes a slot, so that peers unmap its memory. Called by the owner.
  void close(int slot) { entries_[std::size_t(slot)].id.store(0, std::memory_order_release); }
  /// Returns the memory in a slot, with id 0 if the slot is closed. Returns nothing while the owner
  /// writes. Called by peers.
  std::optional<Memory> read(int slot) const {
    const Entry& entry = entries_[std::size_t(slot)];
    const Word id = entry.id.load(std::memory_order_acquire);
    if (id == 0) return Memory{};
    Words words;
    for (std::size_t w = 0; w < words.size(); ++w) {
      words[w] = entry.memory[w].load(std::memory_order_relaxed);
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    Memory memory;
    std::memcpy(static_cast<void*>(&memory), words.data(), sizeof memory);
    if (entry.id.load(std::memory_order_relaxed) != id || memory.id != id) return {};
    return memory;
  }

  /// Tells peers of other processes whether the owner's GPU is short of memory. They unmap what is
  /// in no window as long as it is. Called by the owner.
  void set_scarce(bool scarce) { scarce_.store(scarce, std::memory_order_release); }
  bool is_scarce() const { return scarce_.load(std::memory_order_acquire); }

  /// Notifies the owner that a board of a peer has changed. Any rank.
  void ring();
  /// Number of notifications. `await_ring` waits for more. Called by the owner.
  unsigned notified() const { return doorbell_.load(std::memory_order_acquire); }
  void await_ring(unsigned notified, std::chrono::milliseconds limit);

  /// Records that peer `reader` has mapped the memory of the slot, or cannot map it.
  void seen(int reader, int slot, Word id) {
    seen_[std::size_t(reader)][std::size_t(slot)].store(id, std::memory_order_release);
  }
  bool seen_by(int reader, Word id) const {
    return seen_[std::size_t(reader)][std::size_t(id) % RemoteBuffer::slots].load(
               std::memory_order_acquire) == id;
  }

 private:
  static_assert(sizeof(Memory) % sizeof(Word) == 0);
  using Words = std::array<Word, sizeof(Memory) / sizeof(Word)>;
  struct Entry {
    std::atomic<Word> id{0};
    std::array<std::atomic<Word>, sizeof(Memory) / sizeof(Word)> memory{};
  };
  std::atomic<unsigned> doorbell_{0};
  std::atomic<bool> scarce_{false};
  std::array<Entry, RemoteBuffer::slots> entries_;
  std::array<std::array<std::atomic<Word>, RemoteBuffer::slots>, PeerView::max_ranks> seen_{};
};

}  // namespace ccl::detail
