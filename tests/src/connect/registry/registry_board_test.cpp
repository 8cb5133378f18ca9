#include "connect/registry/registry_board.hpp"

#include <memory>
#include <thread>

#include "support/catch.hpp"

using namespace ccl;
using detail::RegistryBoard;

TEST_CASE("an address leads into the memory that has its id, and into no other") {
  const Word base = 0x7f12'3456'7000, offset = 0x1234567;
  const Word where = detail::RemoteBuffer::where(77, offset),
             entry = detail::RemoteBuffer::entry(77, base);
  REQUIRE(detail::RemoteBuffer::leads(entry, where));
  REQUIRE(reinterpret_cast<Word>(detail::RemoteBuffer::at(entry, where)) == base + offset);
  REQUIRE_FALSE(detail::RemoteBuffer::leads(
      entry,
      detail::RemoteBuffer::where(77 + detail::RemoteBuffer::slots, offset)));  // the same slot
  REQUIRE(
      detail::RemoteBuffer::slot(where) ==
      detail::RemoteBuffer::slot(detail::RemoteBuffer::where(77 + detail::RemoteBuffer::slots, 0)));
  REQUIRE_FALSE(detail::RemoteBuffer::leads(0, 0));
  REQUIRE_FALSE(detail::RemoteBuffer::leads(0, where));
}

TEST_CASE("a board lists memories as long as they are open") {
  const auto board = std::make_unique<RegistryBoard>();
  REQUIRE(board->read(5)->id == 0);
  RegistryBoard::Memory memory;
  memory.id = 5 + 3 * detail::RemoteBuffer::slots;
  memory.base = 0x1000;
  memory.bytes = 42;
  board->open(memory);
  REQUIRE(board->read(5)->id == memory.id);
  REQUIRE(board->read(5)->base == 0x1000);
  REQUIRE(board->read(5)->bytes == 42);
  REQUIRE_FALSE(board->seen_by(2, memory.id));
  board->seen(2, 5, memory.id);
  REQUIRE(board->seen_by(2, memory.id));
  REQUIRE_FALSE(board->seen_by(2, 5));
  board->close(5);
  REQUIRE(board->read(5)->id == 0);
}

TEST_CASE("a waiter gets notifications from before and after it began to wait") {
  const auto board = std::make_unique<RegistryBoard>();
  const unsigned before = board->notified();
  board->ring();
  board->await_ring(before, std::chrono::minutes{10});  // returns at once
  REQUIRE(board->notified() == before + 1);
  std::thread peer{[&] { board->ring(); }};
  while (board->notified() == before + 1) board->await_ring(before + 1, std::chrono::minutes{10});
  peer.join();
  REQUIRE(board->notified() == before + 2);
}

TEST_CASE("a reader never takes halves of two memories for one") {
  const auto board = std::make_unique<RegistryBoard>();
  std::thread owner{[&] {
    for (Word n = 1; n <= 20'000; ++n) {
      RegistryBoard::Memory memory;
      memory.id = n * detail::RemoteBuffer::slots;
      memory.base = memory.bytes = n;
      board->close(0);
      board->open(memory);
    }
  }};
  Word last = 0;
  bool whole = true;
  while (last < 20'000) {
    const auto memory = board->read(0);
    if (!memory || memory->id == 0) {
      std::this_thread::yield();
      continue;
    }
    last = memory->id / detail::RemoteBuffer::slots;
    whole = whole && memory->base == last && memory->bytes == last;
  }
  owner.join();
  REQUIRE(whole);
}
