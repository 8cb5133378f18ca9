#pragma once

#include <ccl/element.hpp>
#include <ccl/types.hpp>

namespace ccl {

/// The user's buffers, seen as cells of elements. `Align` is what the address of every run of cells
/// is known to be a multiple of: 16 where base, chunks and counts allow it, else sizeof(T) or 1.
/// `in` and `out` may be the same memory. A view.
template <class T, int Align>
class Span {
 public:
  static constexpr int cell_words = Element<T>::words_per_cell;
  static constexpr int per_cell = Element<T>::per_cell;

  CCL_HD Span(const void* in, void* out)
      : in_{static_cast<const char*>(in)}, out_{static_cast<char*>(out)} {}

  CCL_HD const char* in(Index at) const { return in_ + at * Index{sizeof(T)}; }
  CCL_HD char* out(Index at) const { return out_ + at * Index{sizeof(T)}; }

  /// A lane's cells of the tile whose first element is `at` and which has `left` elements, or fewer
  /// than none, or more than fit. What is not there reads as zero.
  template <class Lane>
  CCL_HD typename Lane::Fragment load(const Lane& lane, Index at, Index left) const {
    typename Lane::Fragment f{};
    const char* const from = in(at);
    CCL_UNROLL for (int c = 0; c < Lane::cells; c += Lane::stride) {
      const int first = lane.cell(c) * per_cell;
      if (lane.has(c) && whole<Lane>() && first + Lane::stride * per_cell <= left) {
        read<Lane::stride * cell_words>(from + first * int(sizeof(T)), &f.word[c * cell_words]);
      } else {
        CCL_UNROLL for (int i = 0; i < Lane::stride * per_cell; ++i) {
          if (!lane.has(c + i / per_cell) || first + i >= left) continue;
          T x;
          __builtin_memcpy(&x, from + (first + i) * int(sizeof(T)), sizeof(T));
          Element<T>::put(&f.word[(c + i / per_cell) * cell_words], i % per_cell, x);
        }
      }
    }
    return f;
  }
  template <class Lane>
  CCL_HD void store(const Lane& lane, Index at, Index left,
                    const typename Lane::Fragment& f) const {
    char* const to = out(at);
    CCL_UNROLL for (int c = 0; c < Lane::cells; c += Lane::stride) {
      const int first = lane.cell(c) * per_cell;
      if (lane.has(c) && whole<Lane>() && first + Lane::stride * per_cell <= left) {
        write<Lane::stride * cell_words>(to + first * int(sizeof(T)), &f.word[c * cell_words]);
      } else {
        CCL_UNROLL for (int i = 0; i < Lane::stride * per_cell; ++i) {
          if (!lane.has(c + i / per_cell) || first + i >= left) continue;
          const T x = Element<T>::get(&f.word[(c + i / per_cell) * cell_words], i % per_cell);
          __builtin_memcpy(to + (first + i) * int(sizeof(T)), &x, sizeof(T));
        }
      }
    }
  }

 private:
  /// May whole cells be moved as words? A CPU takes any address.
  template <class Lane>
  CCL_HD static constexpr bool whole() {
    if constexpr (!Element<T>::packed) return false;
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return Align >= 8 * cell_words * Lane::stride;),
                      (return true;))
  }
  template <int Words>
  CCL_HD static void read(const char* from, Word* to) {
    NV_IF_ELSE_TARGET(
        NV_IS_DEVICE,
        (__builtin_memcpy(to, __builtin_assume_aligned(from, Words % 2 ? 8 : 16), 8 * Words);),
        (__builtin_memcpy(to, from, 8 * Words);))
  }
  template <int Words>
  CCL_HD static void write(char* to, const Word* from) {
    NV_IF_ELSE_TARGET(
        NV_IS_DEVICE,
        (__builtin_memcpy(__builtin_assume_aligned(to, Words % 2 ? 8 : 16), from, 8 * Words);),
        (__builtin_memcpy(to, from, 8 * Words);))
  }

  const char* in_;
  char* out_;
};

}  // namespace ccl
