#pragma once

#include <ccl/types/word.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace ccl {

/// Simulated transport: links of given bandwidths on a virtual clock. It moves no bytes; it
/// computes the time at which they would arrive.
///
/// Pieces that share a link pass one after the other, whole, in the order in which they are passed
/// in, so many streams take turns. They must be passed in by their start time. A piece enters the
/// next link of its route when it enters the one before, unless that link is busy. Its last byte
/// arrives when the slowest or busiest link has passed it. The links buffer: a piece that waits for
/// one link occupies no other.
class SimTransport {
 public:
  static constexpr const char* name = "sim";

  /// Adds a link of `gbs` GB/s in one direction. Returns its number, counted from 0.
  int add_link(double gbs) {
    us_per_byte_.push_back(1e-3 / gbs);
    free_at_.push_back(0);
    return int(free_at_.size()) - 1;
  }
  /// Adds a route over these links, in order of travel. An empty route has no delay. Returns its
  /// number, counted from 0.
  int add_route(std::span<const int> links) {
    links_.insert(links_.end(), links.begin(), links.end());
    begins_.push_back(int(links_.size()));
    return int(begins_.size()) - 2;
  }

  /// Returns the time in us at which the last of `bytes` arrives that start at `start_us`.
  double carry(int route, double bytes, double start_us) {
    return pass(route, bytes, start_us).arrives_us;
  }
  /// Times of a piece on a route.
  struct Passage {
    double head_us;     ///< the first byte leaves the route
    double arrives_us;  ///< the last byte has passed it
  };
  /// As `carry`, for a piece that goes on over another route from `head_us` on.
  Passage pass(int route, double bytes, double start_us) {
    double head = start_us, over = start_us;
    for (int i = begins_[std::size_t(route)]; i < begins_[std::size_t(route) + 1]; ++i) {
      const auto link = std::size_t(links_[std::size_t(i)]);
      head = std::max(head, free_at_[link]);
      free_at_[link] = head + bytes * us_per_byte_[link];
      over = std::max(over, free_at_[link]);
    }
    return {head, over};
  }

  /// Returns the number of links.
  int link_count() const { return int(free_at_.size()); }
  /// Returns the us of one byte on a link.
  double us_per_byte(int link) const { return us_per_byte_[std::size_t(link)]; }
  /// Returns the links of a route, in order of travel.
  std::span<const int> route(int n) const {
    const auto begin = std::size_t(begins_[std::size_t(n)]);
    return {links_.data() + begin, std::size_t(begins_[std::size_t(n) + 1]) - begin};
  }

 private:
  std::vector<double> us_per_byte_, free_at_;
  std::vector<int> links_, begins_{0};  // links of all routes, end to end
};

}  // namespace ccl
