#pragma once

#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Receive buffers whose references peers post to this rank, and their places where this rank has
/// mapped them. `Memory`: memory of the lanes.
template <class Memory, int Most>
struct PostedBuffers {
  const BasicPeerExchangeWork<Most>& work;

  /// Returns the words to which a peer posts.
  CCL_HD const Word* posted(int peer) const {
    return detail::mailbox<Most>(work.peers, work.peers.rank, peer)->remote_buffer;
  }
  /// Returns the place of a peer's receive buffer, which the peer has posted, or null if it is not
  /// mapped.
  CCL_HD char* mapped(int peer) const {
    const Word* const posted = this->posted(peer);
    const Word where =
        (Memory::load_credit(posted) & 0xffff'ffffu) | Memory::load_credit(posted + 1) << 32;
    return at(table_entry(peer, RemoteBuffer::slot(where)), where);
  }
  CCL_HD Word table_entry(int peer, int slot) const {
    return Memory::load_relaxed(work.table + peer * RemoteBuffer::slots + slot);
  }
  CCL_HD static char* at(Word entry, Word where) {
    return RemoteBuffer::leads(entry, where) ? RemoteBuffer::at(entry, where) : nullptr;
  }
  /// Waits for a peer's reference to its receive buffer. `to` becomes the buffer's place, or null
  /// if it is not mapped. Returns false if the spin wait failed.
  template <class Wait>
  CCL_HD bool await(Wait& wait, int peer, Word flag, bool may_be_mapped, char*& to) {
    const Word* const posted = this->posted(peer);
    int slot = 0;
    Word entry = 0, where;
    if (may_be_mapped) {
      // The buffer of the message before is probably in the same memory, whose entry is loaded
      // while the reference is on its way.
      slot = RemoteBuffer::slot(Memory::load_credit(posted + 1) << 32);
      entry = table_entry(peer, slot);
    }
    if (!wait.credit_pair(posted, flag, peer, where)) return false;
    if (!may_be_mapped) return true;
    to = RemoteBuffer::slot(where) == slot ? at(entry, where) : nullptr;
    if (to == nullptr) to = at(table_entry(peer, RemoteBuffer::slot(where)), where);
    return true;
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
