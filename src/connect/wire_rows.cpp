#include <ccl/detail/runtime/wire_rows.hpp>

#include <algorithm>
#include <utility>

namespace ccl::detail {

namespace {
constexpr int first_columns = 4;  // of a ring: none, and its two neighbors
}  // namespace

WireRows::WireRows(int ranks, int channels, bool whole) : channels_{channels}, columns_{ranks} {
  if (!whole && ranks > max_whole) {
    columns_ = first_columns;
    column_of_.resize(std::size_t(ranks));
    peers_.push_back(-1);
  }
  for (auto& wires : wires_) wires.resize(std::size_t(columns_) * std::size_t(channels));
}

std::size_t WireRows::entry(int channel, int peer) const {
  const int column = column_of_.empty() ? peer : column_of_[std::size_t(peer)];
  return std::size_t(channel) * std::size_t(columns_) + std::size_t(column);
}

const Wire& WireRows::at(bool sends, int channel, int peer) const {
  return wires_[sends ? 1 : 0][entry(channel, peer)];
}

bool WireRows::put(bool sends, int channel, int peer, const Wire& wire) {
  const bool is_new = !column_of_.empty() && column_of_[std::size_t(peer)] == 0;
  const bool moved = is_new && add_column(peer);
  wires_[sends ? 1 : 0][entry(channel, peer)] = wire;
  return moved;
}

int WireRows::peer_of(std::size_t entry) const {
  const std::size_t column = entry % std::size_t(columns_);
  if (column_of_.empty()) return int(column);
  return column < peers_.size() ? peers_[column] : -1;
}

bool WireRows::add_column(int peer) {
  const bool moves = int(peers_.size()) == columns_;
  if (moves) {
    const int before = columns_;
    const int columns = std::min(2 * before, int(column_of_.size()) + 1);
    for (auto& wires : wires_) {
      std::vector<Wire> wider(std::size_t(columns) * std::size_t(channels_));
      for (int c = 0; c < channels_; ++c) {
        std::copy_n(wires.begin() + std::ptrdiff_t(c) * before, before,
                    wider.begin() + std::ptrdiff_t(c) * columns);
      }
      wires = std::move(wider);
    }
    columns_ = columns;
  }
  column_of_[std::size_t(peer)] = int(peers_.size());
  peers_.push_back(peer);
  return moves;
}

}  // namespace ccl::detail
