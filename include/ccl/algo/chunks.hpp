#pragma once

#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Elements of the user's buffers, by their offsets in the input and in the output.
struct Part {
  Index in = 0, out = 0;  ///< elements from the begin of the buffer
  Index count = 0;        ///< elements
};

/// Layout of a message in the user's buffers, in elements.
struct Layout {
  Index count = 0;       ///< elements of the whole message if `split`, else of one share
  Index in_stride = 0;   ///< elements from one share to the next in the input; unused if `split`
  Index out_stride = 0;  ///< elements from one share to the next in the output; unused if `split`
  /// true: shares are cut from the message; false: each share has `count` elements
  bool split = false;
};

/// Part of a message that one channel carries, in rounds of one chunk for each share. All ranks
/// compute the same rounds, so both ends of a wire know every size without communication.
class Chunks {
 public:
  static constexpr Index max_elements = Index{1} << 30;  ///< elements of a chunk, at most
  /// Cuts the part of `channel`. `chunk` is the maximum number of elements of a chunk; chunks and
  /// channels begin at multiples of `grain` elements.
  CCL_HD constexpr Chunks(const Layout& layout, int shares, int channel, int channels, Index chunk,
                          Index grain)
      : layout_{layout}, shares_{shares}, grain_{grain}, max_chunk_{int(chunk)} {
    const Index part = round_up(div_up<Index>(layout.count, channels), grain);
    const Index begin = part * channel;
    end_ = begin + part < layout.count ? begin + part : layout.count;
    round_ = begin < end_ ? begin : end_;
  }

  /// Advances to the next round. Returns false if the part of the channel is complete.
  CCL_HD constexpr bool next() {
    round_ = next_round();
    if (round_ >= end_) return false;
    const Index left = end_ - round_;
    const Index fair = layout_.split ? div_up<Index>(left, shares_) : left;
    chunk_ = fair < max_chunk_ ? int(round_up(fair, grain_)) : max_chunk_;
    return true;
  }
  /// Returns the chunk of share `s` in the current round.
  CCL_HD constexpr Part share(int s) const {
    if (layout_.split) {
      const Index at = round_ + Index{s} * chunk_;
      return {at, at, clamp(end_ - at)};
    }
    return {s * layout_.in_stride + round_, s * layout_.out_stride + round_, clamp(end_ - round_)};
  }
  /// Returns the number of rounds from the next one on in which every share has a whole chunk.
  CCL_HD constexpr Index full_rounds() const {
    const Index left = end_ - next_round();
    return left <= 0 ? 0 : left / (layout_.split ? Index{max_chunk_} * shares_ : max_chunk_);
  }
  /// Advances to the last of the next `rounds` rounds: at least 1, at most `full_rounds()`.
  CCL_HD constexpr void skip(Index rounds) {
    round_ = next_round();
    chunk_ = max_chunk_;
    round_ += (next_round() - round_) * (rounds - 1);
  }
  /// Returns the whole round as one part, for algorithms without shares.
  CCL_HD constexpr Part all() const { return share(0); }

 private:
  CCL_HD constexpr Index next_round() const {
    return round_ + (layout_.split ? Index{chunk_} * shares_ : Index{chunk_});
  }
  CCL_HD static constexpr Index round_up(Index n, Index grain) {
    return div_up<Index>(n, grain) * grain;
  }
  CCL_HD constexpr Index clamp(Index left) const {
    return left < 0 ? 0 : left < chunk_ ? left : Index{chunk_};
  }

  // Members stay in registers for the whole kernel.
  Layout layout_;
  int shares_;
  Index grain_;
  int max_chunk_;
  int chunk_ = 0;  // elements of the current round's chunk; 0 before the first round
  Index end_ = 0, round_ = 0;
};

}  // namespace ccl

CCL_ANY_SPACE_END
