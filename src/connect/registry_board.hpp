#pragma once

#include <ccl/detail/exchange/mailbox.hpp>

#include <cuda.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>

namespace ccl::detail {

/// What a rank tells its peers of the memories that they may map: lies in memory that all of them
/// share. The owner writes entries, peers ring its bell and write down what they have mapped.
struct RegistryBoard {
  /// One memory of the owner's, as it says itself.
  struct Memory {
    Word id = 0;    // counts, from 1 on; of `RemoteBuffer::id_shift`'s high bits
    Word base = 0;  // in the owner's address space
    Word bytes = 0;
    Word window = 0;  // its number, if it is one of those; else `ipc` opens it
    CUipcMemHandle ipc{};
  };

  /// Owner: opens a memory in the slot of its id, which must be closed.
  void open(const Memory& memory) {
    Entry& entry = entries_[std::size_t(memory.id) % RemoteBuffer::slots];
    Words words;
    std::memcpy(words.data(), &memory, sizeof memory);
    // The slot was closed, then these, then its id: who reads across them sees the id change.
    std::atomic_thread_fence(std::memory_order_release);
    for (std::size_t w = 0; w < words.size(); ++w) {
      entry.memory[w].store(words[w], std::memory_order_relaxed);
    }
    entry.id.store(memory.id, std::memory_order_release);
  }
  /// Owner: peers will let go of it.
  void close(int slot) { entries_[std::size_t(slot)].id.store(0, std::memory_order_release); }
  /// Peers: what lies in a slot; id 0: nothing. Nothing at all while the owner writes there.
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

  /// Anyone: there is something to read at a peer of this board's owner.
  void ring();
  /// Owner: how often it was rung, and a wait for more than that.
  unsigned notified() const { return doorbell_.load(std::memory_order_acquire); }
  void await_ring(unsigned notified, std::chrono::milliseconds limit);

  /// Peer `reader`: has mapped what lay in the slot, or has found that it cannot.
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
  std::array<Entry, RemoteBuffer::slots> entries_;
  std::array<std::array<std::atomic<Word>, RemoteBuffer::slots>, PeerView::max_ranks> seen_{};
};

}  // namespace ccl::detail
