#pragma once

#include <ccl/types/word.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace ccl {

/// In place of memory and networks: links of given bandwidths, on a virtual clock. It moves no
/// bytes; it says when they would have come.
///
/// What shares a link goes one after the other, whole pieces in the order in which they are handed
/// over (they are handed over by the time they start); pieces of many streams so take turns. A
/// piece enters the next link of its way as soon as it enters the one before, unless that is busy:
/// its last byte is over when the slowest or busiest link has let it through. Links buffer: a piece
/// that waits for one holds none of the others.
class SimTransport {
 public:
  static constexpr const char* name = "sim";

  /// Of `gbs` 1e9 bytes a second, one direction. Numbers count from 0.
  int add_link(double gbs) {
    us_per_byte_.push_back(1e-3 / gbs);
    free_at_.push_back(0);
    return int(free_at_.size()) - 1;
  }
  /// Links in order of travel; none: nothing is in the way. Numbers count from 0.
  int add_route(std::span<const int> links) {
    links_.insert(links_.end(), links.begin(), links.end());
    begins_.push_back(int(links_.size()));
    return int(begins_.size()) - 2;
  }

  /// When the last of `bytes` is over that start at `start_us`.
  double carry(int route, double bytes, double start_us) {
    double head = start_us, over = start_us;
    for (int i = begins_[std::size_t(route)]; i < begins_[std::size_t(route) + 1]; ++i) {
      const auto link = std::size_t(links_[std::size_t(i)]);
      head = std::max(head, free_at_[link]);
      free_at_[link] = head + bytes * us_per_byte_[link];
      over = std::max(over, free_at_[link]);
    }
    return over;
  }

  int link_count() const { return int(free_at_.size()); }
  double us_per_byte(int link) const { return us_per_byte_[std::size_t(link)]; }
  std::span<const int> route(int n) const {
    const auto begin = std::size_t(begins_[std::size_t(n)]);
    return {links_.data() + begin, std::size_t(begins_[std::size_t(n) + 1]) - begin};
  }

 private:
  std::vector<double> us_per_byte_, free_at_;
  std::vector<int> links_, begins_{0};  // of all routes, end to end
};

}  // namespace ccl
